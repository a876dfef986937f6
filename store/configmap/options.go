package configmap

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kvtuner/kvtuner/store"
)

// DefaultKey is the document's key.
const DefaultKey = "parameters.json"

// Keys beside the document's, and the annotation that names the tuner in charge.
const (
	StatusKey        = "status.yaml"
	StopKey          = "stop"
	CheckpointKey    = "checkpoint.gz"
	WriterAnnotation = "kvtuner.io/writer"
)

// FieldManager owns what this package writes, in the ConfigMap's managedFields.
const FieldManager = "kvtuner"

// DefaultTimeout bounds one request to the API server.
const DefaultTimeout = 5 * time.Second

// Options say where the document of a pool is.
type Options struct {
	// Client is the API server's core API; see Connect.
	Client corev1client.ConfigMapsGetter
	// Namespace and Name of the ConfigMap.
	Namespace string
	Name      string
	// Key of the document; empty is DefaultKey.
	Key string
	// Pool, if set, is the only one whose document is accepted.
	Pool string
	// Identity names this tuner among all others. A Store that has one takes the
	// ConfigMap over at its first load, and is refused from when another does.
	// Empty takes nothing over, and only compare-and-swap protects the document.
	Identity string
	// Existing tells a Store never to make the ConfigMap: if it is gone, that was
	// meant.
	Existing bool
	// Timeout of a request; 0 is DefaultTimeout.
	Timeout time.Duration
	// Logger tells about trouble with watching; nil is silent.
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	if o.Key == "" {
		o.Key = DefaultKey
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, o.validate()
}

func (o Options) validate() error {
	if o.Client == nil {
		return &store.FieldError{Field: "client", Value: "none", Allowed: "a client of the API server"}
	}
	if err := CheckNames(o.Namespace, o.Name, o.Key); err != nil {
		return err
	}
	if o.Timeout < 0 {
		return &store.FieldError{Field: "timeout", Value: o.Timeout.String(), Allowed: "0 for the default, or more"}
	}
	return nil
}

// CheckNames says whether Kubernetes can have such a ConfigMap and key, and that
// the key is not one with another meaning here. Errors wrap store.ErrInvalid.
func CheckNames(namespace, name, key string) error {
	reserved := []string{StatusKey, StopKey, CheckpointKey}
	for _, c := range []struct {
		field, value string
		refused      []string
	}{
		{"namespace", namespace, validation.IsDNS1123Label(namespace)},
		{"name", name, validation.IsDNS1123Subdomain(name)},
		{"key", key, validation.IsConfigMapKey(key)},
	} {
		if len(c.refused) > 0 {
			return &store.FieldError{Field: c.field, Value: fmt.Sprintf("%q", c.value), Allowed: "a Kubernetes name: " + strings.Join(c.refused, "; ")}
		}
	}
	if slices.Contains(reserved, key) {
		return &store.FieldError{Field: "key", Value: fmt.Sprintf("%q", key), Allowed: "a key other than " + strings.Join(reserved, ", ")}
	}
	return nil
}

func (o Options) String() string { return "ConfigMap " + o.Namespace + "/" + o.Name }
