package kube

import (
	"fmt"
	"log/slog"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/kvtuner/kvtuner/store/configmap"
)

// Cluster is the API server as one process sees it.
type Cluster struct {
	// Core and Coordination are its clients.
	Core         *corev1client.CoreV1Client
	Coordination *coordinationclient.CoordinationV1Client
	// Metadata reads of any kind of object only what all have.
	Metadata metadata.Interface
	// Namespace is meant where none is named: the pod's own, or kubectl's.
	Namespace string
	// Identity is this process among all others: the host's name, which in a pod
	// is the pod's, and what makes it unique.
	Identity string
}

// Connect finds the API server; see configmap.Connect. It sends no request. What
// the client library has to say goes to log.
func Connect(kubeconfig string, log *slog.Logger) (*Cluster, error) {
	config, namespace, err := configmap.Connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	klog.SetSlogLogger(log)
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	// The Lease has connections of its own: no pool may hold up its renewal.
	coordination, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming this process: %w", err)
	}
	return &Cluster{Core: core, Coordination: coordination, Metadata: objects, Namespace: namespace, Identity: host + "_" + string(uuid.NewUUID())}, nil
}
