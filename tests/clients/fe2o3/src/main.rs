//! fe2o3-amqp as one of the clients of tests/clients; programs.py has the requests and replies.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use fe2o3_amqp::connection::{ConnectionHandle, ConnectionStopReason, Error as ConnectionError, OpenError};
use fe2o3_amqp::link::delivery::DeliveryFut;
use fe2o3_amqp::link::{DetachError, ReceiverAttachError, SendError, SenderAttachError, SessionStopReason};
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::{BeginError, SessionHandle};
use fe2o3_amqp::types::definitions::{self, ErrorCondition, ReceiverSettleMode, SenderSettleMode};
use fe2o3_amqp::types::messaging::{Data, Message, MessageId, Modified, Outcome, Properties, Source, Target};
use fe2o3_amqp::types::primitives::{Binary, Symbol};
use fe2o3_amqp::{Connection, Delivery, Receiver, Sendable, Sender, Session};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const LIMIT: Duration = Duration::from_secs(20);

type Failure = Box<dyn Error + Send + Sync>;
type Reply = Result<Value, Failure>;
type Sending = DeliveryFut<Result<Outcome, SendError>>;

#[derive(Default)]
struct Client {
    connections: HashMap<String, (ConnectionHandle<()>, SessionHandle<()>)>,
    senders: HashMap<String, (Sender, VecDeque<(bool, Sending)>)>,
    receivers: HashMap<String, (Receiver, Option<Delivery<Data>>)>,
}

#[tokio::main]
async fn main() {
    let mut client = Client::default();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let reply = match serde_json::from_str(&line) {
            Ok(request) => client.perform(&request).await,
            Err(error) => Err(error.into()),
        };
        println!("{}", reply.unwrap_or_else(|error| json!({ "error": told(&error) })));
    }
    std::process::exit(0);
}

fn text<'a>(request: &'a Value, name: &str) -> &'a str {
    request[name].as_str().unwrap_or_default()
}

impl Client {
    async fn perform(&mut self, request: &Value) -> Reply {
        let patience = request["limit_ms"].as_u64().map_or(LIMIT, Duration::from_millis);
        match timeout(patience, self.choose(request)).await {
            Ok(reply) => reply,
            Err(_) => Err("nothing came in time".into()),
        }
    }

    async fn choose(&mut self, request: &Value) -> Reply {
        let on = text(request, "on");
        match text(request, "op") {
            "connect" => self.connect(request).await,
            "sender" | "receiver" => {
                let reply = match text(request, "op") {
                    "sender" => self.open_sender(request).await,
                    _ => self.open_receiver(request).await,
                };
                // The next link on the session of a refused one sometimes fails in the library: "Illegal link state".
                if reply.is_err() {
                    let (connection, session) = self.connections.get_mut(on).ok_or("no such connection")?;
                    *session = Session::begin(connection).await?;
                }
                reply
            }
            "credit" => {
                let (receiver, _) = self.receiver(on)?;
                let granted = receiver.credit() + request["count"].as_u64().unwrap_or(0) as u32;
                receiver.set_credit(granted).await?;
                Ok(json!({}))
            }
            // The library sends the request, and does not show the answer.
            "drain" => {
                self.receiver(on)?.0.drain().await?;
                Ok(json!({}))
            }
            "send" => self.send(request).await,
            "outcome" => self.outcome(on).await,
            "receive" => self.receive(on).await,
            "settle" => self.settle(request).await,
            "close" => {
                self.connections.get_mut(on).ok_or("no such connection")?.0.close().await?;
                Ok(json!({}))
            }
            "closed" => {
                let (connection, _) = self.connections.get_mut(on).ok_or("no such connection")?;
                let condition = match connection.on_close().await {
                    Err(ConnectionError::RemoteClosedWithError(error)) => Some(error),
                    _ => None,
                };
                Ok(json!({ "condition": condition.map(|error| name(&error.condition)) }))
            }
            op => Err(format!("no such operation: {op}").into()),
        }
    }

    fn receiver(&mut self, name: &str) -> Result<&mut (Receiver, Option<Delivery<Data>>), Failure> {
        self.receivers.get_mut(name).ok_or("no such receiver".into())
    }

    async fn connect(&mut self, request: &Value) -> Reply {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(text(request, "ca"))?)?;
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let port = request["port"].as_u64().unwrap_or(0) as u16;
        let socket = TcpStream::connect(("localhost", port)).await?;
        let stream = TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost")?, socket).await?;
        let mut connection = Connection::builder()
            .container_id("fe2o3")
            .hostname("localhost")
            .scheme("amqp")
            .sasl_profile(SaslProfile::Plain {
                username: text(request, "user").into(),
                password: text(request, "password").into(),
            })
            .open_with_stream(stream)
            .await?;
        // A denied client gets Open and Close at once.
        let session = Session::begin(&mut connection).await?;
        self.connections.insert(text(request, "as").into(), (connection, session));
        Ok(json!({}))
    }

    async fn open_sender(&mut self, request: &Value) -> Reply {
        let (_, session) = self.connections.get_mut(text(request, "on")).ok_or("no such connection")?;
        let target = match request["address"].as_str() {
            Some(address) => Target::from(address),
            None => Target::default(),
        };
        let mut builder = Sender::builder().name(text(request, "as")).target(target);
        if let Some(mode) = mode(request) {
            builder = builder.sender_settle_mode(mode);
        }
        let sender = builder.attach(session).await?;
        self.senders.insert(text(request, "as").into(), (sender, VecDeque::new()));
        Ok(json!({}))
    }

    async fn open_receiver(&mut self, request: &Value) -> Reply {
        let (_, session) = self.connections.get_mut(text(request, "on")).ok_or("no such connection")?;
        let source = match request["address"].as_str() {
            Some(address) => Source::from(address),
            None => Source::builder().dynamic(true).build(),
        };
        let mut builder = Receiver::builder()
            .name(text(request, "as"))
            .source(source)
            .credit_mode(fe2o3_amqp::link::receiver::CreditMode::Manual)
            .auto_accept(false);
        if let Some(mode) = mode(request) {
            builder = builder.sender_settle_mode(mode);
        }
        if text(request, "settles") == "second" {
            builder = builder.receiver_settle_mode(ReceiverSettleMode::Second);
        }
        let receiver = builder.attach(session).await?;
        let address = receiver.source().as_ref().and_then(|source| source.address.clone());
        self.receivers.insert(text(request, "as").into(), (receiver, None));
        Ok(json!({ "address": address }))
    }

    async fn send(&mut self, request: &Value) -> Reply {
        let (sender, sent) = self.senders.get_mut(text(request, "on")).ok_or("no such sender")?;
        let mut properties = Properties::builder().message_id(text(request, "id").to_string());
        if let Some(to) = request["to"].as_str() {
            properties = properties.to(to);
        }
        if let Some(reply_to) = request["reply_to"].as_str() {
            properties = properties.reply_to(reply_to);
        }
        let body = vec![b'x'; request["size"].as_u64().unwrap_or(0) as usize];
        let message = Message::builder().properties(properties.build()).data(Binary::from(body)).build();
        let is_settled = request["settled"].as_bool().unwrap_or(false);
        let sendable = Sendable::builder().message(message).settled(is_settled).build();
        sent.push_back((is_settled, sender.send_batchable(sendable).await?));
        Ok(json!({}))
    }

    async fn outcome(&mut self, on: &str) -> Reply {
        let (_, sent) = self.senders.get_mut(on).ok_or("no such sender")?;
        let (is_settled, sending) = sent.pop_front().ok_or("nothing was sent")?;
        Ok(match sending.await? {
            _ if is_settled => json!({ "outcome": "settled" }),
            Outcome::Accepted(_) => json!({ "outcome": "accepted" }),
            Outcome::Released(_) => json!({ "outcome": "released" }),
            Outcome::Modified(state) => json!({
                "outcome": "modified",
                "failed": state.delivery_failed,
                "elsewhere": state.undeliverable_here,
            }),
            Outcome::Rejected(state) => json!({
                "outcome": "rejected",
                "condition": state.error.as_ref().map(|error| name(&error.condition)),
                "description": state.error.and_then(|error| error.description),
            }),
        })
    }

    async fn receive(&mut self, on: &str) -> Reply {
        let (receiver, last) = self.receiver(on)?;
        let delivery: Delivery<Data> = receiver.recv().await?;
        let message = delivery.message();
        let properties = message.properties.clone().unwrap_or_default();
        let id = match properties.message_id {
            Some(MessageId::String(id)) => Some(id),
            _ => None,
        };
        let body = &message.body.0;
        let reply = json!({
            "id": id,
            "size": body.len(),
            "is_whole": body.iter().all(|byte| *byte == b'x'),
            "reply_to": properties.reply_to,
        });
        *last = Some(delivery);
        Ok(reply)
    }

    async fn settle(&mut self, request: &Value) -> Reply {
        let (receiver, last) = self.receiver(text(request, "on"))?;
        let delivery = last.as_ref().ok_or("nothing was received")?;
        match text(request, "outcome") {
            "accepted" => receiver.accept(delivery).await?,
            "released" => receiver.release(delivery).await?,
            "rejected" => {
                let condition = ErrorCondition::Custom(Symbol::from(text(request, "condition")));
                let description = text(request, "description").to_string();
                receiver.reject(delivery, definitions::Error::new(condition, description, None)).await?
            }
            _ => {
                let state = Modified {
                    delivery_failed: Some(true),
                    undeliverable_here: Some(true),
                    message_annotations: None,
                };
                receiver.modify(delivery, state).await?
            }
        }
        Ok(json!({}))
    }
}

fn mode(request: &Value) -> Option<SenderSettleMode> {
    match text(request, "mode") {
        "settled" => Some(SenderSettleMode::Settled),
        "unsettled" => Some(SenderSettleMode::Unsettled),
        "mixed" => Some(SenderSettleMode::Mixed),
        _ => None,
    }
}

fn name(condition: &ErrorCondition) -> String {
    let symbol = match condition {
        ErrorCondition::AmqpError(known) => Symbol::from(known),
        ErrorCondition::ConnectionError(known) => Symbol::from(known),
        ErrorCondition::SessionError(known) => Symbol::from(known),
        ErrorCondition::LinkError(known) => Symbol::from(known),
        ErrorCondition::Custom(symbol) => symbol.clone(),
    };
    symbol.to_string()
}

/// The condition and description of the peer, where it gave them.
fn told(error: &Failure) -> Value {
    let remote = if let Some(error) = error.downcast_ref::<OpenError>() {
        match error {
            OpenError::RemoteClosedWithError(remote) => Some(remote),
            _ => None,
        }
    } else if let Some(BeginError::ConnectionStopped(reason)) = error.downcast_ref() {
        of_connection(reason)
    } else if let Some(error) = error.downcast_ref::<SenderAttachError>() {
        match error {
            SenderAttachError::RemoteClosedWithError(remote) => Some(remote),
            SenderAttachError::SessionStopped(SessionStopReason::ConnectionStopped(reason)) => of_connection(reason),
            _ => None,
        }
    } else if let Some(error) = error.downcast_ref::<ReceiverAttachError>() {
        match error {
            ReceiverAttachError::RemoteClosedWithError(remote) => Some(remote),
            ReceiverAttachError::SessionStopped(SessionStopReason::ConnectionStopped(reason)) => of_connection(reason),
            _ => None,
        }
    } else if let Some(SendError::Detached(DetachError::RemoteClosedWithError(remote))) = error.downcast_ref() {
        Some(remote)
    } else {
        None
    };
    match remote {
        Some(remote) => json!({ "condition": name(&remote.condition), "description": remote.description }),
        None => json!({ "condition": null, "description": error.to_string() }),
    }
}

fn of_connection(reason: &ConnectionStopReason) -> Option<&definitions::Error> {
    match reason {
        ConnectionStopReason::RemoteClosedWithError(remote) => Some(remote),
        _ => None,
    }
}
