// Package tuner is the loop that finds and keeps the thresholds of one pool:
// observe, judge, propose, publish.
//
// It is the second stop of the data path metrics -> tuner -> store -> plugin ->
// request. Read it in that order:
//
//   - observer.go asks Prometheus for the counters of a window and turns them
//     into a Sample of the pool: ok, idle or unknown, never a made-up zero;
//   - objective.go makes one number of a sample: the cost of a request;
//   - curves.go fits what restoring and recomputing cost, from the plugin's own
//     counters, and ladder.go and search.go propose a candidate;
//   - trial.go compares candidate and incumbent in alternating blocks with the
//     sequential test of sequential.go, and guard.go ends it early;
//   - command.go is what operators can order, and orders.go what a pool makes of it;
//   - controller.go is the pure core that ties these together: observation in,
//     action out; tuner.go is the shell around it that does the I/O.
//
// It must not know which store holds the document, nor which Endpoint Picker
// obeys it, and it never imports the plugin.
package tuner
