// Package kube tests kvtuner against a real API server: kube-apiserver and etcd as
// processes, RBAC and Pod Security enforced, no cluster and no containers. It is a
// module of its own, so that the product does not carry what only it needs.
//
//	make e2e-kube
//
// builds the servers once, which takes a quarter of an hour of CPU time, and runs
// the tests in minutes.
package kube
