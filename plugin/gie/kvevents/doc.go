// Package kvevents tells how much of a request's prefix an engine holds, tier by
// tier, from the KV cache events that vLLM publishes over ZeroMQ.
//
// One follower an endpoint subscribes to its events, proves by sequence numbers
// and digests that none is missing, asks the engine's replay socket for those
// that are, and keeps a bounded index of the blocks held. vLLM's block hashes
// are internal to an engine, so the index chains its own hashes over the token
// IDs of the events; [Producer] hashes the tokens of a request alike and
// publishes the match as an attribute of each candidate endpoint.
//
// What cannot be told is not published: while an endpoint is disconnected, or
// was joined in the middle of its history, it has no evidence. The package knows
// neither the policy nor what is decided from the counts.
package kvevents
