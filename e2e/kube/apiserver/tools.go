//go:build tools

// Package apiserver pins the kube-apiserver and the etcd that the tests of the
// module above run. It is a module of its own: neither they nor the product compile
// with what these need.
package apiserver

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
