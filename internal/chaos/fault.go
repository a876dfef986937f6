package chaos

import (
	"fmt"
	"time"
)

// Kind of a fault.
type Kind string

// Faults of Prometheus, its targets, the store, the Endpoint Picker, the tuner's
// process, clocks and the workload.
const (
	promDown      Kind = "prometheus-down"
	promSlow      Kind = "prometheus-slow"
	promStatus    Kind = "prometheus-http-error"
	promTruncated Kind = "prometheus-truncated-json"
	promPartial   Kind = "prometheus-partial-with-warning"
	promEmpty     Kind = "prometheus-empty-answer"
	promNotNumber Kind = "prometheus-not-a-number"
	promDuplicate Kind = "prometheus-duplicate-series"
	promGap       Kind = "scrape-gap"
	promSkew      Kind = "scrape-clock-skew"

	engineDark    Kind = "engine-dark"
	engineRestart Kind = "engine-restart"
	engineChurn   Kind = "engine-replaced"
	engineLinger  Kind = "engine-deleted-series-linger"

	storeDown          Kind = "store-down"
	storeReadOnly      Kind = "store-read-only"
	storeFull          Kind = "store-full"
	storeUncertain     Kind = "store-write-says-it-failed"
	storeConflict      Kind = "store-conflict"
	storeForeign       Kind = "store-foreign-write"
	storeForeignTrial  Kind = "store-foreign-trial"
	storeEdited        Kind = "store-edited-in-place"
	storeTorn          Kind = "store-torn"
	storeCorrupt       Kind = "store-corrupt"
	storeOlder         Kind = "store-older-revision"
	storeRemoved       Kind = "store-removed"
	storeStopped       Kind = "kill-switch"
	checkpointCorrupt  Kind = "checkpoint-corrupt"
	checkpointOlder    Kind = "checkpoint-older"
	checkpointRemoved  Kind = "checkpoint-removed"
	journalDown        Kind = "history-down"
	replicaDark        Kind = "epp-dark"
	replicaRestart     Kind = "epp-restart"
	replicaStuck       Kind = "epp-does-not-read"
	replicaSkewed      Kind = "epp-clock-skew"
	replicaAdded       Kind = "epp-added"
	tunerKilled        Kind = "tuner-killed"
	tunerShutdown      Kind = "tuner-shut-down-mid-query"
	tunerSecond        Kind = "second-tuner"
	operator           Kind = "operator-command"
	tunerClock         Kind = "tuner-clock-jump"
	everyClock         Kind = "every-clock-jump"
	workloadCollapse   Kind = "collapse"
	workloadInTrial    Kind = "collapse-in-trial"
	workloadSurge      Kind = "surge"
	workloadIdle       Kind = "idle"
	workloadErrors     Kind = "request-errors"
	workloadSlow       Kind = "slow-storage"
	workloadFastEngine Kind = "fast-prefill"
)

// Faults of schedules whose store is a ConfigMap, drawn beside the others.
const (
	clusterRefuses  Kind = "api-server-refuses"
	clusterGarbles  Kind = "api-server-answers-nonsense"
	clusterTouched  Kind = "configmap-touched-by-others"
	clusterDeleted  Kind = "configmap-deleted"
	clusterHeld     Kind = "configmap-applied-from-manifest"
	clusterSigned   Kind = "configmap-writer-edited"
	operatorPauses  Kind = "operator-pauses"
	operatorRejects Kind = "operator-rejects"
)

var clusterKinds = []Kind{
	clusterRefuses, clusterGarbles, clusterTouched, clusterDeleted, clusterHeld, clusterSigned, operatorPauses, operatorRejects,
}

var kinds = []Kind{
	promDown, promSlow, promStatus, promTruncated, promPartial, promEmpty, promNotNumber, promDuplicate, promGap, promSkew,
	engineDark, engineRestart, engineChurn, engineLinger,
	storeDown, storeReadOnly, storeFull, storeUncertain, storeConflict, storeForeign, storeForeignTrial, storeEdited,
	storeTorn, storeCorrupt, storeOlder, storeRemoved, storeStopped, checkpointCorrupt, checkpointOlder, checkpointRemoved, journalDown,
	replicaDark, replicaRestart, replicaStuck, replicaSkewed, replicaAdded,
	tunerKilled, tunerShutdown, tunerSecond, operator, tunerClock, everyClock,
	workloadCollapse, workloadInTrial, workloadSurge, workloadIdle, workloadErrors, workloadSlow, workloadFastEngine,
}

// point is where a tuner can be killed.
type point string

var points = []point{
	"before load", "before query", "after query", "before record", "after record",
	"before publish", "after publish", "before checkpoint", "after checkpoint",
}

// fault is one thing that goes wrong, from a time for a while.
type fault struct {
	kind Kind
	at   time.Duration // since the schedule began
	last time.Duration
	// share of the occasions it strikes, where there are several.
	share float64
	// pick chooses a target, a value or an instant where the kind has several.
	pick uint64
}

func (f fault) point() point { return points[f.pick%uint64(len(points))] }

// jump is how far a clock goes: a second to a week, either way.
func (f fault) jump() time.Duration {
	jumps := []time.Duration{time.Second, 20 * time.Second, 2 * time.Minute, 20 * time.Minute, time.Hour, 5 * time.Hour, 7 * 24 * time.Hour}
	d := jumps[f.pick/2%uint64(len(jumps))]
	if f.pick%2 == 0 {
		return -d
	}
	return d
}

// String says what the fault is, for a trace.
func (f fault) String() string {
	s := fmt.Sprintf("%s for %v", f.kind, f.last)
	switch f.kind {
	case tunerKilled:
		return fmt.Sprintf("%s %s, for %v", f.kind, f.point(), f.last)
	case tunerClock, everyClock, replicaSkewed:
		return fmt.Sprintf("%s of %v", f.kind, f.jump())
	}
	if f.share < 1 {
		s += fmt.Sprintf(", %.0f%% of the time", 100*f.share)
	}
	return s
}
