// The client of edgeward's id filters. It tells a service which ids certainly do not exist, so that the service sends
// no requests for them.
//
// A manifest lists the files of a filter. A proof states which manifest is the newest, in answer to a random challenge
// of the client. The publisher signs both. `Refused` is the error for received data that the client does not use.

export { FilterClient } from "./client.js";
export { Filter, FilterError } from "./filter.js";
export { hashBigInt as hash } from "./id.js";
export { importKeys, ManifestError, readManifest, readProof, sha256 } from "./manifest.js";
export { FilterState, Refused } from "./state.js";
