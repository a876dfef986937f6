package configmap

import (
	"fmt"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Limits on the requests of one process to the API server, averaged, and at once:
// enough for a hundred pools, and no burden.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 100
)

// Connect reads how to reach the API server, as kubectl does: from the kubeconfig,
// or if that is empty from $KUBECONFIG, ~/.kube/config, or the service account of
// the pod. It also returns the namespace that is meant where none is named. It
// sends no request.
func Connect(kubeconfig string) (c *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	if c, err = loader.ClientConfig(); err != nil {
		return nil, "", fmt.Errorf("finding the API server (run in a pod with a service account, or name a kubeconfig): %w", err)
	}
	if namespace, _, err = loader.Namespace(); err != nil {
		return nil, "", fmt.Errorf("finding the namespace: %w", err)
	}
	c.QPS, c.Burst = requestsPerSecond, requestsAtOnce
	c.UserAgent = "kvtuner"
	return c, namespace, nil
}

// Find opens a reader where no client is at hand: it connects, and an empty
// namespace is the one that Connect returns.
func Find(kubeconfig string, o Options) (*Reader, error) {
	config, namespace, err := Connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	o.Client = client
	if o.Namespace == "" {
		o.Namespace = namespace
	}
	return OpenReader(o)
}
