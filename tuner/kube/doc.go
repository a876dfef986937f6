// Package kube is what the tuner asks of Kubernetes and says to it: the Lease that
// makes one of several replicas the tuner, the pools that objects stand for, Events for
// decisions, and a status that people read in a pool's ConfigMap.
//
// Documents are package store/configmap's. It must not know how pools are tuned;
// without an API server none of it holds a pool up.
package kube
