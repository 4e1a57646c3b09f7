// Azure/go-amqp as one of the clients of tests/clients; programs.py has the requests and replies.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

const limit = 20 * time.Second

// Bytes of the frame that carries a token; the library refuses one that is longer than it was told.
const tokenFrame = 4096

type request struct {
	Op, As, On         string
	Port               int
	CA, User, Password string
	Mechanism          string
	Certificate, Key   string
	Address            *string
	Mode, Settles      string
	Count              uint32
	ID                 string
	Size               int
	To                 string
	ReplyTo            string `json:"reply_to"`
	Settled            bool
	LimitMS            int `json:"limit_ms"`
	Outcome            string
	Condition          string
	Description        string
}

type reply map[string]any

type sending struct {
	state amqp.DeliveryState
	err   error
}

type sender struct {
	*amqp.Sender
	outcomes chan sending
	settled  bool
}

type receiver struct {
	*amqp.Receiver
	last *amqp.Message
}

var (
	connections = map[string]*amqp.Conn{}
	sessions    = map[string]*amqp.Session{}
	senders     = map[string]*sender{}
	receivers   = map[string]*receiver{}
)

var senderModes = map[string]amqp.SenderSettleMode{
	"unsettled": amqp.SenderSettleModeUnsettled,
	"settled":   amqp.SenderSettleModeSettled,
	"mixed":     amqp.SenderSettleModeMixed,
}

var receiverModes = map[string]amqp.ReceiverSettleMode{
	"first":  amqp.ReceiverSettleModeFirst,
	"second": amqp.ReceiverSettleModeSecond,
}

func connect(ctx context.Context, r request) (reply, error) {
	pem, err := os.ReadFile(r.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	options := &amqp.ConnOptions{TLSConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	if r.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(r.Certificate, r.Key)
		if err != nil {
			return nil, err
		}
		options.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	switch r.Mechanism {
	case "PLAIN":
		options.SASLType = amqp.SASLTypePlain(r.User, r.Password)
	case "EXTERNAL":
		options.SASLType = amqp.SASLTypeExternal("")
	case "XOAUTH2":
		options.SASLType = amqp.SASLTypeXOAUTH2(r.User, r.Password, tokenFrame)
	default:
		return nil, fmt.Errorf("no such mechanism: %s", r.Mechanism)
	}
	connection, err := amqp.Dial(ctx, fmt.Sprintf("amqps://localhost:%d", r.Port), options)
	if err != nil {
		return nil, err
	}
	// A denied client gets Open and Close at once.
	session, err := connection.NewSession(ctx, nil)
	if err != nil {
		return nil, err
	}
	connections[r.As], sessions[r.As] = connection, session
	return reply{}, nil
}

// The library compares the modes of the attach reply with those asked for, and fails when they differ: the reply has
// what was asked.
func modes(r request) (reply, *amqp.SenderSettleMode, *amqp.ReceiverSettleMode) {
	answer := reply{}
	var from *amqp.SenderSettleMode
	var to *amqp.ReceiverSettleMode
	if mode, is := senderModes[r.Mode]; is {
		answer["mode"], from = r.Mode, &mode
	}
	if mode, is := receiverModes[r.Settles]; is {
		answer["settles"], to = r.Settles, &mode
	}
	return answer, from, to
}

func openSender(ctx context.Context, r request) (reply, error) {
	answer, from, to := modes(r)
	options := &amqp.SenderOptions{SettlementMode: from, RequestedReceiverSettleMode: to}
	address := ""
	if r.Address != nil {
		address = *r.Address
	}
	opened, err := sessions[r.On].NewSender(ctx, address, options)
	if err != nil {
		return nil, err
	}
	senders[r.As] = &sender{opened, make(chan sending, 100), r.Mode == "settled"}
	return answer, nil
}

func openReceiver(ctx context.Context, r request) (reply, error) {
	answer, from, to := modes(r)
	options := &amqp.ReceiverOptions{SettlementMode: to, RequestedSenderSettleMode: from, Credit: -1}
	address := ""
	if r.Address == nil {
		options.DynamicAddress = true
	} else {
		address = *r.Address
	}
	opened, err := sessions[r.On].NewReceiver(ctx, address, options)
	if err != nil {
		return nil, err
	}
	receivers[r.As] = &receiver{opened, nil}
	answer["address"] = opened.Address()
	return answer, nil
}

func send(r request) (reply, error) {
	link := senders[r.On]
	body := make([]byte, r.Size)
	for i := range body {
		body[i] = 'x'
	}
	message := amqp.NewMessage(body)
	message.Properties = &amqp.MessageProperties{MessageID: r.ID}
	if r.To != "" {
		message.Properties.To = &r.To
	}
	if r.ReplyTo != "" {
		message.Properties.ReplyTo = &r.ReplyTo
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if r.Settled {
			err := link.Send(ctx, message, &amqp.SendOptions{Settled: !link.settled})
			link.outcomes <- sending{nil, err}
			return
		}
		receipt, err := link.SendWithReceipt(ctx, message, nil)
		if err != nil {
			link.outcomes <- sending{nil, err}
			return
		}
		state, err := receipt.Wait(ctx)
		link.outcomes <- sending{state, err}
	}()
	return reply{}, nil
}

func outcome(ctx context.Context, r request) (reply, error) {
	select {
	case done := <-senders[r.On].outcomes:
		if done.err != nil {
			return nil, done.err
		}
		switch state := done.state.(type) {
		case nil:
			return reply{"outcome": "settled"}, nil
		case *amqp.StateAccepted:
			return reply{"outcome": "accepted"}, nil
		case *amqp.StateReleased:
			return reply{"outcome": "released"}, nil
		case *amqp.StateModified:
			return reply{"outcome": "modified", "failed": state.DeliveryFailed, "elsewhere": state.UndeliverableHere}, nil
		case *amqp.StateRejected:
			answer := reply{"outcome": "rejected"}
			if state.Error != nil {
				answer["condition"], answer["description"] = state.Error.Condition, state.Error.Description
			}
			return answer, nil
		default:
			return nil, fmt.Errorf("no outcome of AMQP: %v", state)
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func receive(ctx context.Context, r request) (reply, error) {
	link := receivers[r.On]
	message, err := link.Receive(ctx, nil)
	if err != nil {
		return nil, err
	}
	link.last = message
	answer := reply{"size": len(message.GetData()), "is_whole": isWhole(message.GetData()), "reply_to": nil}
	answer["id"] = message.Properties.MessageID
	if message.Properties.ReplyTo != nil {
		answer["reply_to"] = *message.Properties.ReplyTo
	}
	return answer, nil
}

func isWhole(body []byte) bool {
	for _, each := range body {
		if each != 'x' {
			return false
		}
	}
	return true
}

// In mode second these return once the sender has settled.
func settle(ctx context.Context, r request) (reply, error) {
	link := receivers[r.On]
	var err error
	switch r.Outcome {
	case "accepted":
		err = link.AcceptMessage(ctx, link.last)
	case "rejected":
		err = link.RejectMessage(ctx, link.last, &amqp.Error{Condition: amqp.ErrCond(r.Condition), Description: r.Description})
	case "released":
		err = link.ReleaseMessage(ctx, link.last)
	default:
		err = link.ModifyMessage(ctx, link.last, &amqp.ModifyMessageOptions{DeliveryFailed: true, UndeliverableHere: true})
	}
	return reply{}, err
}

func closed(ctx context.Context, r request) (reply, error) {
	select {
	case <-connections[r.On].Done():
		var remote *amqp.Error
		if errors.As(connections[r.On].Err(), &remote) {
			return reply{"condition": remote.Condition}, nil
		}
		return reply{"condition": nil}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func perform(r request) (reply, error) {
	patience := limit
	if r.LimitMS > 0 {
		patience = time.Duration(r.LimitMS) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch r.Op {
	case "connect":
		return connect(ctx, r)
	case "sender":
		return openSender(ctx, r)
	case "receiver":
		return openReceiver(ctx, r)
	case "credit":
		return reply{}, receivers[r.On].IssueCredit(r.Count)
	case "drain":
		return reply{}, receivers[r.On].DrainCredit(ctx, nil)
	case "send":
		return send(r)
	case "outcome":
		return outcome(ctx, r)
	case "receive":
		return receive(ctx, r)
	case "settle":
		return settle(ctx, r)
	case "close":
		return reply{}, connections[r.On].Close()
	case "closed":
		return closed(ctx, r)
	default:
		return nil, fmt.Errorf("no such operation: %s", r.Op)
	}
}

func told(err error) reply {
	var remote *amqp.Error
	if errors.As(err, &remote) {
		return reply{"error": reply{"condition": remote.Condition, "description": remote.Description}}
	}
	return reply{"error": reply{"condition": nil, "description": err.Error()}}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	replies := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var r request
		err := json.Unmarshal(lines.Bytes(), &r)
		var answer reply
		if err == nil {
			answer, err = perform(r)
		}
		if err != nil {
			answer = told(err)
		}
		if err := replies.Encode(answer); err != nil {
			return
		}
	}
}
