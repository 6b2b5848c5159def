// The client of edgeward's id filters. It tells which ids certainly do not exist and need no request.
//
// A manifest lists the files of a filter. A proof is the publisher's signed response to a random challenge of the
// client. The publisher signs both.

export { FilterClient } from "./client.js";
export { Filter, FilterError } from "./filter.js";
export { hashBigInt as hash } from "./id.js";
export { importKeys, ManifestError, readManifest, readProof, sha256 } from "./manifest.js";
export { FilterState, Refused } from "./state.js";
