// Package chaos breaks everything around the tuner, at random from a seed and in
// virtual time, and checks after every event that nothing it must never do has
// happened.
//
// The tuner, the stores, the history and the plugin are the real ones. What they
// live in is not: a pool that is a handful of formulas (pool.go), a Prometheus
// that keeps the last minutes (prometheus.go), a medium that can be torn
// (medium.go), and clocks that jump. plan.go draws what happens, world.go lets it
// happen, and watch.go knows the rules. A schedule is a function of its seed
// alone, so that a violation is found again by that seed.
//
// It must not know how parameters are found: the rules are what the README
// promises, not what the code does.
package chaos
