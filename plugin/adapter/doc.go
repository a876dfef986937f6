// Package adapter is the part of an Endpoint Picker plugin that is the same in
// every Endpoint Picker (EPP): it stands between the hooks of a framework and
// the policy, on the data path metrics -> tuner -> store -> plugin -> request.
//
// A plugin translates its framework's types into calls of an Adapter and adds
// what only it can know; it must not decide. The order of calls:
//
//   - New: read the configuration, follow the parameter document.
//   - Scraped, Routed: the load of an engine.
//   - Profile, Decide: a request was routed; decide, and edit its body.
//   - ResponseHeader, ResponseBody: what came of it, in time and tokens.
//   - Removed, Added: an endpoint is gone, or back.
//
// Whatever is missing or malformed, the request goes out as the client wrote it,
// and a counter says why.
//
// It must not know any EPP framework, nor Kubernetes, nor the tuner.
package adapter
