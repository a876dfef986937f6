// Package notify tells people of decisions by webhook, as JSON or as Slack and
// its kin take it. Sending happens beside the loop: a queue of bounded length a
// target, attempts with back-off, and what cannot be sent is counted and dropped.
// The history is the record; a notification is a courtesy.
//
// It must not know how decisions are made. No URL or token is ever logged:
// that of a Slack webhook is a secret by itself.
package notify
