//go:build race

package plugin

// raceDetector says that sync.Pool drops items at random, so that what pools
// scratch space allocates.
const raceDetector = true
