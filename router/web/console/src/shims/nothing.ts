// rhea requires modules of Node that it does not use over a WebSocket.
export default {};
