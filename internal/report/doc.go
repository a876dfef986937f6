// Package report draws what happened in a few lab runs over the same phases as
// one HTML page: the path of both thresholds, throughput and latencies over
// time, each decision with its reason, and how policies compare.
//
// The page is one file without scripts or anything to fetch, and the same story
// gives the same bytes. The package must not know how runs are made.
package report
