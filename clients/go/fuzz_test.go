package filter

// Fuzz tests of the parsers of untrusted input: `go test -fuzz=FuzzOpen .` and so on. A plain `go test` runs the golden files.

import "testing"

func FuzzOpen(f *testing.F) {
	for _, name := range []string{"static-small.ewf", "static-three-shards.ewf", "updatable-small.ewf"} {
		f.Add(vector(f, name), uint64(7))
	}
	f.Fuzz(func(t *testing.T, file []byte, hash uint64) {
		// An attacker would correct the checksums.
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
		// Any server is trusted, so that the signature rejects no input.
		if manifest, err := ReadManifest(line, nil); err == nil && manifest.Snapshot.Base > manifest.Head {
			t.Errorf("%+v", manifest)
		}
		_, _ = ReadProof(line, nil)
	})
}
