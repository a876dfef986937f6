// Package llmd runs the policy inside the Endpoint Picker (EPP) of
// llm-d-router, v0.10.0 of August 2026 and later, as the plugin
// "selective-kv-policy" of an EndpointPickerConfig.
//
// It is the adapter on the data path metrics -> tuner -> store -> plugin ->
// request: it translates the framework's hooks into calls of the policy, and
// writes the policy's answer into the request before the framework sends it. It
// decides nothing, and must not know the tuner.
//
//   - PreRequest: decide for the chosen endpoint and edit the body.
//   - ResponseHeader, ResponseBody: what came of it, in time and tokens.
//   - RegisterDependencies: the load of engines from every scrape, and endpoints
//     that are gone.
//
// Whatever is missing or malformed, the request goes out as the client wrote it,
// and a counter says why.
package llmd
