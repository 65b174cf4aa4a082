package boltstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"slices"

	"go.etcd.io/bbolt"
)

// An index keeps its keys in blocks: a block's first key is a key of the bucket, and its value has the other
// keys with their lengths. Bucket keys are slow to read in bbolt: each costs more than a block's bytes.

// blockBytes is the length at which a block is split, so that a page of the file has several blocks.
const blockBytes = 1000

// edit adds a key, or removes it.
type edit struct {
	key  []byte
	gone bool
}

// write applies edits that are sorted by key, and skips those that change nothing. It reads all blocks before
// it writes, because a cursor of bbolt does not go past a page that a deletion has left empty.
func write(bucket *bbolt.Bucket, edits []edit) (err error) {
	var gone [][]byte
	var keys, blocks [][]byte // one block's keys; pairs of a new block's first key and its value
	for cursor := bucket.Cursor(); len(edits) > 0; {
		first, others := blockOf(cursor, edits[0].key)
		next, _ := cursor.Next()
		keys = appendKeys(keys[:0], first, others)
		changed := false
		for n := 0; len(edits) > 0 && (n == 0 || next == nil || bytes.Compare(edits[0].key, next) < 0); n++ {
			at, found := slices.BinarySearchFunc(keys, edits[0].key, bytes.Compare)
			switch {
			case edits[0].gone && found:
				keys, changed = slices.Delete(keys, at, at+1), true
			case !edits[0].gone && !found:
				keys, changed = slices.Insert(keys, at, edits[0].key), true
			}
			edits = edits[1:]
		}
		if !changed {
			continue
		}
		if first != nil && (len(keys) == 0 || !bytes.Equal(first, keys[0])) {
			gone = append(gone, first)
		}
		blocks = appendBlocks(blocks, keys)
	}
	for _, first := range gone {
		err = cmp.Or(err, bucket.Delete(first))
	}
	for block := range slices.Chunk(blocks, 2) {
		err = cmp.Or(err, bucket.Put(block[0], block[1]))
	}
	return err
}

// appendBlocks divides keys into blocks, and appends the first key and the value of each. If there is more
// than one block, each has room for more keys.
func appendBlocks(to, keys [][]byte) [][]byte {
	length := 0
	for _, key := range keys {
		length += len(key)
	}
	for most := length/(length/blockBytes+1) + 1; len(keys) > 0; {
		first, others := keys[0], make([]byte, 0, most+most/4)
		for keys = keys[1:]; len(keys) > 0 && len(first)+len(others) < most; keys = keys[1:] {
			others = append(binary.AppendUvarint(others, uint64(len(keys[0]))), keys[0]...)
		}
		to = append(to, first, others)
	}
	return to
}

// blockOf finds the block that a key belongs to; nil: the bucket has no blocks.
func blockOf(cursor *bbolt.Cursor, key []byte) (first, others []byte) {
	first, others = cursor.Seek(key)
	switch {
	case first == nil:
		return cursor.Last()
	case bytes.Equal(first, key):
		return first, others
	}
	if first, others = cursor.Prev(); first == nil {
		return cursor.First()
	}
	return first, others
}

// appendKeys appends the keys of a block; a nil first has none. It panics if the value is damaged.
func appendKeys(to [][]byte, first, others []byte) [][]byte {
	if first != nil {
		to = append(to, first)
	}
	for len(others) > 0 {
		length, begins := binary.Uvarint(others)
		end := max(begins, 1) + int(length) //nolint:gosec // a length out of range panics
		to, others = append(to, others[begins:end:end]), others[end:]
	}
	return to
}

// keysFrom yields the keys from one key up to another, which is excluded; a nil bucket has none. back: in
// descending order. alone: the bucket has documents, not blocks.
func keysFrom(bucket *bbolt.Bucket, from, to []byte, back, alone bool) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if bucket == nil {
			return
		}
		cursor := bucket.Cursor()
		begin, step := from, cursor.Next
		if back {
			begin, step = to, cursor.Prev
		}
		var keys [][]byte
		for first, others := blockOf(cursor, begin); first != nil; first, others = step() {
			if alone {
				others = nil
			}
			if keys = appendKeys(keys[:0], first, others); back {
				slices.Reverse(keys)
			}
			for _, key := range keys {
				low, high := bytes.Compare(key, from) < 0, bytes.Compare(key, to) >= 0
				switch {
				case low && back, high && !back:
					return
				case low, high: // the first block may also have keys outside the bounds
				case !yield(key):
					return
				}
			}
		}
	}
}
