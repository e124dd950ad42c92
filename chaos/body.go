package main

import (
	"encoding/binary"
	"hash/crc32"
)

// headSize is the smallest body: publisher, sequence number and a checksum of
// what follows.
const headSize = 16

var table = crc32.MakeTable(crc32.Castagnoli)

// body returns a body of about size bytes that says whose it is.
func body(publisher, seq, size int) []byte {
	b := make([]byte, max(size, headSize))
	binary.BigEndian.PutUint32(b, uint32(publisher))
	binary.BigEndian.PutUint64(b[4:], uint64(seq))
	for i := headSize; i < len(b); i++ {
		b[i] = byte(i*7 + seq)
	}
	binary.BigEndian.PutUint32(b[12:], crc32.Checksum(b[headSize:], table)+uint32(len(b)))
	return b
}

// intact says whether b is the body of a message, whole and unmixed.
func intact(b []byte, publisher, seq int) bool {
	return len(b) >= headSize &&
		binary.BigEndian.Uint32(b) == uint32(publisher) &&
		binary.BigEndian.Uint64(b[4:]) == uint64(seq) && checked(b)
}

func checked(b []byte) bool {
	return binary.BigEndian.Uint32(b[12:]) == crc32.Checksum(b[headSize:], table)+uint32(len(b))
}
