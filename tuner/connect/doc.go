// Package connect reaches Prometheus as users have it: behind TLS, a login, a
// tenant's header or a proxy, and under the names Thanos, Mimir or
// VictoriaMetrics.
//
// It must not know what is asked. An answer that may lack a part is an error:
// what is missing must never look like data.
package connect
