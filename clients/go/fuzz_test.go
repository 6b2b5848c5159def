package filter

// Fuzz tests of the parsers of untrusted input. `go test -fuzz=FuzzOpen .` fuzzes one parser. A plain `go test` runs
// each fuzz test only with the inputs of f.Add.

import "testing"

func FuzzOpen(f *testing.F) {
	for _, name := range []string{"static-small.ewf", "static-three-shards.ewf", "updatable-small.ewf"} {
		f.Add(vector(f, name), uint64(7))
	}
	f.Fuzz(func(t *testing.T, file []byte, hash uint64) {
		// The header gets the correct length and checksums, as an attacker would write them. Open would otherwise reject
		// the file before it reads the rest.
		if len(file) > headerBytes {
			file = append([]byte(nil), file...)
			put64(file[64:], uint64(len(file)-headerBytes))
			put64(file[72:], xxh3(file[headerBytes:], 0))
			put64(file[120:], xxh3(file[:120], 0))
		}
		if filter, err := Open(file); err == nil {
			filter.mayContain(hash)
		}
	})
}

func FuzzReadDelta(f *testing.F) {
	f.Add(vector(f, "delta.ewd"))
	f.Fuzz(func(t *testing.T, file []byte) {
		if read, err := readDelta(file); err == nil && len(file) != deltaHeaderBytes+8*len(read.ids) {
			t.Errorf("%d ids in %d bytes", len(read.ids), len(file))
		}
	})
}

func FuzzReadManifest(f *testing.F) {
	f.Add(vector(f, "manifest.txt"))
	f.Add(vector(f, "proof.txt"))
	f.Fuzz(func(t *testing.T, line []byte) {
		// Without keys (nil) no signature is verified. The parser therefore gets every JSON text that the fuzzer makes.
		// Head is the newest number of the journal. A snapshot has all ids up to the number Base, so Base <= Head.
		if manifest, err := ReadManifest(line, nil); err == nil && manifest.Snapshot.Base > manifest.Head {
			t.Errorf("%+v", manifest)
		}
		_, _ = ReadProof(line, nil)
	})
}
