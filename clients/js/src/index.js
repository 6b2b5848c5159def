// The client of edgeward's id filters. It tells which ids certainly do not exist and need no request.

export { FilterClient } from "./client.js";
export { Filter, FilterError } from "./filter.js";
export { hashBigInt as hash } from "./id.js";
export { importKeys, ManifestError, readManifest, readProof, sha256 } from "./manifest.js";
export { FilterState, Refused } from "./state.js";
