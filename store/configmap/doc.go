// Package configmap keeps a pool's parameter document in a Kubernetes ConfigMap:
// the store of a tuner that runs in a cluster, and what an Endpoint Picker watches
// there.
//
// One ConfigMap belongs to one pool:
//
//	data:
//	  parameters.json   the document; the key's name can be chosen
//	  status.yaml       what the tuner is doing, to be read by people
//	  stop              kill switch: its mere presence; the value is a reason
//	binaryData:
//	  checkpoint.gz     the tuner's checkpoint
//
// Writes are compare-and-swap on the resourceVersion, and nothing but these keys is
// touched. It must not know how parameters are found, nor what a plugin does with
// them. It is the only place of the module, with cmd/kvtuner, that talks to
// Kubernetes.
package configmap
