// Package store is the room between tuner and plugin: the parameter document of
// a pool, its validation, the places it can live in (memory, file), the tuner's
// checkpoint beside it, and the history of decisions.
//
// It is the third stop of the data path metrics -> tuner -> store -> plugin ->
// request. It must not know how parameters are found, nor what a plugin does
// with them; tuner and plugin both import it and never each other.
package store
