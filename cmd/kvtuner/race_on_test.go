//go:build race

package main

// racing tells that the race detector is on: under it the scripts that simulate
// take ten times as long, and find nothing that the packages' own tests do not.
const racing = true
