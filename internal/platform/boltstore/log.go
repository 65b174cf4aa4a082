package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// logs are two files beside the store's, with the commits that are not in it yet. One is appended to. The
// other's commits are being moved to the store. Each is written again from its beginning when the other is
// full, since a sync to disk is faster where the file does not grow.
type logs struct {
	files [2]*os.File
	// open is the one to append to, and end the length of its records.
	open int
	end  int64
	// sequence is the number of the last record.
	sequence uint64
}

// A record has a checksum of the rest, the length of its body, its sequence number, and the body. Its length
// is a multiple of headerBytes.
const headerBytes = 16

func checksum(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

func logPaths(path string) [2]string { return [2]string{path + ".log1", path + ".log2"} }

// openLogs opens the logs of a store, and creates them if needed. It calls redo with each record behind the
// sequence number, up to which the store has them, in their order.
func openLogs(path string, sequence uint64, redo func(body []byte) error) (l *logs, err error) {
	l = &logs{sequence: sequence}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	var all [2][][]byte
	var first [2]uint64
	for i, at := range logPaths(path) {
		l.files[i], err = os.OpenFile(at, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // it is the caller's
		if err != nil {
			return l, err
		}
		data, err := io.ReadAll(l.files[i])
		if err != nil {
			return l, err
		}
		var sound bool
		if first[i], all[i], sound = records(data, sequence); !sound {
			return l, Damaged(at)
		}
	}
	order := []int{0, 1}
	if first[1] < first[0] {
		order = []int{1, 0}
	}
	for _, i := range order {
		for n, body := range all[i] {
			number := first[i] + uint64(n)
			if number <= l.sequence {
				continue
			}
			if number > l.sequence+1 || redo(body) != nil {
				return l, Damaged(logPaths(path)[i])
			}
			l.sequence = number
		}
	}
	folder, err := os.Open(filepath.Dir(path))
	if err == nil { // a new file is on the disk once its folder is
		err = errors.Join(folder.Sync(), folder.Close())
	}
	return l, err
}

// records returns the bodies of a log's records and the number of the first. What follows the last is of
// earlier use, and in the store, or was not written to its end. sound: no later record follows that.
func records(data []byte, inStore uint64) (first uint64, bodies [][]byte, sound bool) {
	last := uint64(0)
	for {
		number, body, rest := record(data)
		if body == nil || len(bodies) > 0 && number != last+1 {
			break
		}
		if bodies = append(bodies, body); len(bodies) == 1 {
			first = number
		}
		last, data = number, rest
	}
	for ; len(data) >= headerBytes; data = data[headerBytes:] {
		if number, body, _ := record(data); body != nil && number > max(last, inStore) {
			return first, bodies, false
		}
	}
	return first, bodies, true
}

// record returns the record at the beginning of data; a nil body: there is none.
func record(data []byte) (number uint64, body, rest []byte) {
	if len(data) < headerBytes {
		return 0, nil, nil
	}
	length := int(binary.BigEndian.Uint32(data[4:]))
	whole := padded(length)
	if length == 0 || whole > len(data) || binary.BigEndian.Uint32(data) != checksum(data[4:whole]) {
		return 0, nil, nil
	}
	return binary.BigEndian.Uint64(data[8:]), data[headerBytes : headerBytes+length], data[whole:]
}

// padded returns the length of the record of a body.
func padded(body int) int { return (body + 2*headerBytes - 1) / headerBytes * headerBytes }

// append writes a record to the disk.
func (l *logs) append(body []byte) error {
	data := make([]byte, padded(len(body)))
	copy(data[headerBytes:], body)
	binary.BigEndian.PutUint32(data[4:], uint32(len(body))) //nolint:gosec // CheckWrites bounds a commit
	binary.BigEndian.PutUint64(data[8:], l.sequence+1)
	binary.BigEndian.PutUint32(data, checksum(data[4:]))
	_, err := l.files[l.open].WriteAt(data, l.end)
	if err == nil {
		err = l.files[l.open].Sync()
	}
	if err != nil {
		return fmt.Errorf("boltstore: write the log: %w", err)
	}
	l.sequence++
	l.end += int64(len(data))
	return nil
}

// turn appends to the other log from now on, whose records the store has.
func (l *logs) turn() { l.open, l.end = 1-l.open, 0 }

func (l *logs) close() (err error) {
	for _, file := range l.files {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	return err
}
