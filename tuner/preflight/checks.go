package preflight

import "context"

// check is one look at one thing.
type check struct {
	// name of the check, and what it looks at, as the documentation lists them.
	name, about string
	run         func(context.Context, *probe)
}

// checks in the order of the data path. The first tells whether anything can be
// asked, "engines" and "plugin" whom the others are about.
var checks = []check{
	{"prometheus", "Prometheus is reachable, is one, and lets us in", askPrometheus},
	{"clock", "this machine and Prometheus agree on the time", compareClocks},
	{"engines", "the selector and the preset find engines", findEngines},
	{"endpoint-label", "a label tells the engines apart", tellEnginesApart},
	{"scraped-twice", "no engine is scraped by two jobs", scrapedTwice},
	{"endpoints", "all engines are seen, and stay", countEngines},
	{"signals", "each engine exports what a sample is made of", haveSignals},
	{"scrape-interval", "engines are scraped as often as scrapeInterval says", measureInterval},
	{"restarts", "engines do not restart all the time", countResets},
	{"models", "the pool serves one model", countModels},
	{"engine-version", "the engines obey max_load_tokens, from vLLM 0.31 on", readVersions},
	{"offload", "the engines restore anything at all", countRestores},
	{"slo", "the SLO is a bucket's edge and the incumbent keeps it", compareSLO},
	{"errors", "few requests end in error", countErrors},
	{"requests", "a trial sees enough requests", countRequests},
	{"plugin", "the Endpoint Picker runs the plugin for this pool", findPlugin},
	{"plugin-source", "the plugin goes by a document", readSource},
	{"revision", "all replicas go by the document that the tuner writes", compareRevisions},
	{"documents", "the plugin accepts the documents", countRefused},
	{"bounds", "the incumbent lies within the bounds of tuner and plugin", compareBounds},
	{"evidence", "the plugin knows which tier holds what", countEvidence},
	{"probes", "a share of the stopped requests is let through as probes", countProbes},
	{"feedback", "the plugin learns how many tokens an engine computed", countFeedback},
	{"waiting-signal", "the plugin sees the engines' queues", readQueues},
	{"coverage", "the plugin decides for the requests that the engines serve", compareTraffic},
	{"effect", "engines recompute what they are told to", measureEffect},
	{"store", "the parameter document can be read and written", readDocument},
	{"checkpoint", "what the tuner has learned fits the document", readCheckpoint},
	{"owner", "one tuner writes the document, and nobody else", countOwners},
	{"history", "the history can be written", writeHistory},
	{"schedule", "the schedule opens", openSchedule},
	{"mode", "what kvtuner may do", sayMode},
	{"sample", "the last window makes a sample", takeSample},
	{"partial", "no answer of Prometheus lacked a part", sawPartial},
}

// Checks lists the names of all checks and what they look at, in order.
func Checks() [][2]string {
	out := make([][2]string, len(checks))
	for i, c := range checks {
		out[i] = [2]string{c.name, c.about}
	}
	return out
}
