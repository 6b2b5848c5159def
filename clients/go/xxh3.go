package filter

import (
	"encoding/binary"
	"math/bits"
)

// The hash function XXH3 with a result of 64 bits, by Yann Collet. This file follows the XXH3 specification, which has a
// separate algorithm for each range of input lengths.

const (
	prime32x1 = 0x9e3779b1
	prime32x2 = 0x85ebca77
	prime32x3 = 0xc2b2ae3d
	prime64x1 = 0x9e3779b185ebca87
	prime64x2 = 0xc2b2ae3d27d4eb4f
	prime64x3 = 0x165667b19e3779f9
	prime64x4 = 0x85ebca77c2b2ae63
	prime64x5 = 0x27d4eb2f165667c5

	stripeBytes = 64
	blockBytes  = 1024
)

var secret = [192]byte{
	0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
	0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
	0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
	0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
	0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
	0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
	0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
	0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
	0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
	0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
	0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
	0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
}

func u32(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
func u64(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
func key(at int) uint64           { return binary.LittleEndian.Uint64(secret[at:]) }

func xxh3(b []byte, seed uint64) uint64 {
	n := len(b)
	switch {
	case n > 240:
		return xxh3Long(b, seed)
	case n > 128:
		return xxh3To240(b, seed)
	case n > 16:
		return xxh3To128(b, seed)
	case n > 8:
		lo := u64(b, 0) ^ ((key(24) ^ key(32)) + seed)
		hi := u64(b, n-8) ^ ((key(40) ^ key(48)) - seed)
		return avalanche(uint64(n) + bits.ReverseBytes64(lo) + hi + mulFold(lo, hi))
	case n > 3:
		seed ^= uint64(bits.ReverseBytes32(uint32(seed))) << 32
		x := uint64(u32(b, n-4)) + uint64(u32(b, 0))<<32
		x ^= (key(8) ^ key(16)) - seed
		x ^= bits.RotateLeft64(x, 49) ^ bits.RotateLeft64(x, 24)
		x *= 0x9fb21c651e98df25
		x ^= (x >> 35) + uint64(n)
		x *= 0x9fb21c651e98df25
		return x ^ x>>28
	case n > 0:
		combined := uint32(b[0])<<16 | uint32(b[n>>1])<<24 | uint32(b[n-1]) | uint32(n)<<8
		flip := uint64(binary.LittleEndian.Uint32(secret[0:])^binary.LittleEndian.Uint32(secret[4:])) + seed
		return avalancheXXH64(uint64(combined) ^ flip)
	}
	return avalancheXXH64(seed ^ key(56) ^ key(64))
}

// Returns the XOR of the upper and the lower half of a product's 128 bits.
func mulFold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// The final mixing of inputs of more than 8 bytes. Shorter inputs are mixed in xxh3 or by avalancheXXH64.
func avalanche(x uint64) uint64 {
	x ^= x >> 37
	x *= 0x165667919e3779f9
	return x ^ x>>32
}

func avalancheXXH64(x uint64) uint64 {
	x ^= x >> 33
	x *= prime64x2
	x ^= x >> 29
	x *= prime64x3
	return x ^ x>>32
}

// Combines 16 bytes of b, from index at, with 16 bytes of the secret, from index k, and the seed.
func mix16(b []byte, at, k int, seed uint64) uint64 {
	return mulFold(u64(b, at)^(key(k)+seed), u64(b, at+8)^(key(k+8)-seed))
}

func xxh3To128(b []byte, seed uint64) uint64 {
	n := len(b)
	sum := uint64(n) * prime64x1
	for pair := (n - 1) / 32; pair >= 0; pair-- {
		sum += mix16(b, 16*pair, 32*pair, seed)
		sum += mix16(b, n-16*(pair+1), 32*pair+16, seed)
	}
	return avalanche(sum)
}

func xxh3To240(b []byte, seed uint64) uint64 {
	n := len(b)
	sum := uint64(n) * prime64x1
	for i := 0; i < 8; i++ {
		sum += mix16(b, 16*i, 16*i, seed)
	}
	sum = avalanche(sum)
	for i := 8; i < n/16; i++ {
		sum += mix16(b, 16*i, 16*(i-8)+3, seed)
	}
	sum += mix16(b, n-16, 136-17, seed)
	return avalanche(sum)
}

func xxh3Long(b []byte, seed uint64) uint64 {
	s := secret
	if seed != 0 {
		for at := 0; at < len(s); at += 16 {
			binary.LittleEndian.PutUint64(s[at:], key(at)+seed)
			binary.LittleEndian.PutUint64(s[at+8:], key(at+8)-seed)
		}
	}
	acc := [8]uint64{
		prime32x3, prime64x1, prime64x2, prime64x3, prime64x4, prime32x2, prime64x5, prime32x1,
	}
	blocks := (len(b) - 1) / blockBytes
	for block := 0; block < blocks; block++ {
		for stripe := 0; stripe < 16; stripe++ {
			accumulate(&acc, b[block*blockBytes+stripe*stripeBytes:], s[8*stripe:])
		}
		for lane := range acc {
			x := acc[lane]
			acc[lane] = (x ^ x>>47 ^ u64(s[:], len(s)-stripeBytes+8*lane)) * prime32x1
		}
	}
	rest := b[blocks*blockBytes:]
	for stripe := 0; stripe < (len(rest)-1)/stripeBytes; stripe++ {
		accumulate(&acc, rest[stripe*stripeBytes:], s[8*stripe:])
	}
	accumulate(&acc, b[len(b)-stripeBytes:], s[len(s)-stripeBytes-7:])
	sum := uint64(len(b)) * prime64x1
	for lane := 0; lane < 8; lane += 2 {
		sum += mulFold(acc[lane]^u64(s[:], 11+8*lane), acc[lane+1]^u64(s[:], 19+8*lane))
	}
	return avalanche(sum)
}

func accumulate(acc *[8]uint64, b, s []byte) {
	b, s = b[:stripeBytes], s[:stripeBytes]
	for lane := 0; lane < 8; lane++ {
		value := u64(b, 8*lane)
		keyed := value ^ u64(s, 8*lane)
		acc[lane^1] += value
		acc[lane] += uint64(uint32(keyed)) * (keyed >> 32)
	}
}
