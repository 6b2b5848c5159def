package filter

// The hashes of the ids that the publisher added to its journal after the journal number from, up to and including
// the number to, and the seed of the hashes. Journal numbers are compared only within one lineage, the random number
// that a publisher's journal gets at each start.
type delta struct {
	lineage, from, to, seed uint64
	ids                     []uint64
}

const (
	deltaHeaderBytes = 64
	deltaMagic       = "\x89EWD\r\n\x1a\n"
)

// Parses a delta, and returns an error if its bytes are not exactly those that a publisher writes.
func readDelta(file []byte) (*delta, error) {
	if len(file) < 8 || string(file[:8]) != deltaMagic {
		return nil, invalidFile("not a delta of an edgeward id filter")
	}
	if len(file) < deltaHeaderBytes {
		return nil, invalidFile("the delta is truncated within its header, after %d bytes", len(file))
	}
	if version := u64(file, 8); version != 1 {
		return nil, invalidFile("the delta has format version %d, and this package reads version 1", version)
	}
	rest := file[deltaHeaderBytes:]
	if count := u64(file, 48); len(rest)%8 != 0 || count != uint64(len(rest)/8) {
		return nil, invalidFile("the delta has %d bytes of ids and its header states %d ids", len(rest), count)
	}
	checked := append(append(make([]byte, 0, len(file)-8), file[:56]...), rest...)
	if u64(file, 56) != xxh3(checked, 0) {
		return nil, invalidFile("the delta is corrupt: its checksum does not match")
	}
	read := &delta{
		lineage: u64(file, 16),
		from:    u64(file, 24),
		to:      u64(file, 32),
		seed:    u64(file, 40),
		ids:     make([]uint64, len(rest)/8),
	}
	ordered := read.from < read.to
	for n := range read.ids {
		read.ids[n] = u64(rest, 8*n)
		ordered = ordered && (n == 0 || read.ids[n-1] < read.ids[n])
	}
	if !ordered {
		return nil, invalidFile("the journal numbers or the ids of the delta are not in ascending order")
	}
	return read, nil
}
