package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Redis has lists with :processing, :delayed and :failed, and lock:<list>:<message id> for a message that a
// worker handles. A script claims a message into the hash <list>:import under a new event id, which is the
// same in every run; two equal messages have two ids.
type Redis struct {
	connections *redis.Pool
	lists       []Name
	parts       []Part // the parts that are taken from each list
	newID       func() string
	at          int                 // the part that is taken now, counted over all lists
	earlier     []Message           // the claims of an earlier run; nil: not read yet
	refused     map[string][]string // the claims that the webhook service refused in this run, by list
}

// Name is the catalog's queue for the messages of a list or old queue. Left is why they stay there.
type Name struct {
	Queue, Source, Left string
}

// failedStay is why failed messages stay where they are.
const failedStay = "they have failed; --failed takes them, with all attempts again"

// NewRedis connects to a redis:// URL. newID makes event ids that sort by time.
func NewRedis(
	ctx context.Context, address string, names []Name, failed bool, newID func() string,
) (*Redis, error) {
	at, err := url.Parse(address)
	if err != nil || (at.Scheme != "redis" && at.Scheme != "rediss") {
		return nil, errors.New("redis: the address is no redis:// URL") // the error may repeat a password
	}
	// Delayed messages come last, because they may hold up later ones of their key.
	parts := []Part{Claimed, Waiting, Delayed}
	if failed {
		parts = append(parts, Failed)
	}
	r := &Redis{lists: names, parts: parts, newID: newID, refused: map[string][]string{}}
	timeouts := []redis.DialOption{
		redis.DialConnectTimeout(patience), redis.DialReadTimeout(patience), redis.DialWriteTimeout(patience),
	}
	r.connections = &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialURLContext(ctx, address, timeouts...)
	}}
	if _, err := r.do(ctx, "PING"); err != nil {
		return nil, errors.Join(fmt.Errorf("redis: %w", err), r.connections.Close())
	}
	return r, nil
}

const patience = 30 * time.Second

// do runs one command, and never repeats it: a repeated claim would take other messages under the same ids.
func (r *Redis) do(ctx context.Context, command string, arguments ...any) (any, error) {
	connection, err := r.connections.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }() // the answer has its failure
	return redis.DoContext(connection, ctx, command, arguments...)
}

var suffixes = map[Part]string{Waiting: "", Claimed: ":processing", Delayed: ":delayed", Failed: ":failed"}

func (l Name) key(part Part) string { return l.Source + suffixes[part] }

// imported is the suffix of the key of a list's claims.
const imported = ":import"

func (l Name) claims() string { return l.Source + imported }

// held returns why nothing is taken from a part; empty if it may be taken.
func (r *Redis) held(ctx context.Context, l Name, part Part) (string, error) {
	switch {
	case l.Left != "":
		return l.Left, nil
	case !slices.Contains(r.parts, part):
		return failedStay, nil
	case part != Claimed:
		return "", nil
	}
	pattern := "lock:" + globless.Replace(l.Source) + ":*"
	for cursor := "0"; ; {
		page, err := redis.Values(r.do(ctx, "SCAN", cursor, "MATCH", pattern, "COUNT", 1000))
		var locks []string
		if err == nil {
			_, err = redis.Scan(page, &cursor, &locks)
		}
		switch {
		case err != nil:
			return "", fmt.Errorf("redis: locks of %s: %w", l.Source, err)
		case len(locks) > 0:
			return "a worker holds a lock: stop the workers, and run again when their locks have expired", nil
		case cursor == "0":
			return "", nil
		}
	}
}

var globless = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// kept lists the suffixes of a list's keys, with the commands that count and show their messages.
var kept = []struct {
	suffix      string
	part        Part
	count, show string
}{
	{imported, Claimed, "HLEN", ""},
	{suffixes[Claimed], Claimed, "LLEN", "LRANGE"},
	{suffixes[Waiting], Waiting, "LLEN", "LRANGE"},
	{suffixes[Delayed], Delayed, "ZCARD", "ZRANGE"},
	{suffixes[Failed], Failed, "LLEN", "LRANGE"},
}

// Look counts the messages of each part.
func (r *Redis) Look(ctx context.Context, sample int) (places []Place, messages []Message, err error) {
	for _, l := range r.lists {
		for _, in := range kept {
			place := Place{Queue: l.Queue, Name: l.Source + in.suffix, Part: in.part, Left: l.Left}
			if place.Count, err = redis.Int64(r.do(ctx, in.count, place.Name)); err != nil {
				return nil, nil, fmt.Errorf("redis: %s: %w", place.Name, err)
			}
			if place.Count == 0 {
				continue
			}
			if in.show != "" {
				if place.Left, err = r.held(ctx, l, in.part); err != nil {
					return nil, nil, err
				}
			}
			if places = append(places, place); place.Left != "" || in.show == "" || len(messages) >= sample {
				continue
			}
			from, to := len(messages)-sample, -1 // the oldest are the last of a list, and the first by time
			if in.part == Delayed {
				from, to = 0, sample-len(messages)-1
			}
			bodies, err := redis.Strings(r.do(ctx, in.show, place.Name, from, to))
			if err != nil {
				return nil, nil, fmt.Errorf("redis: %s: %w", place.Name, err)
			}
			for _, body := range bodies {
				messages = append(messages, Message{Source: l.Source, Queue: l.Queue, Part: in.part, Body: []byte(body)})
			}
		}
	}
	return places, messages, nil
}

// claimScript moves the oldest messages into the hash of claims, each as its part, its score and the message.
const claimScript = `
local taken = {}
for i = 2, #ARGV do
  local message, score
  if ARGV[1] == 'delayed' then
    local least = redis.call('ZPOPMIN', KEYS[1])
    message, score = least[1], least[2]
  else
    message, score = redis.call('RPOP', KEYS[1]), '-'
  end
  if not message then break end
  local claim = ARGV[1] .. ' ' .. score .. ' ' .. message
  redis.call('HSET', KEYS[2], ARGV[i], claim)
  taken[#taken + 1] = claim
end
return taken`

// returnScript puts claimed messages back to where they were taken from.
const returnScript = `
local of = {waiting = KEYS[2], claimed = KEYS[3], delayed = KEYS[4], failed = KEYS[5]}
for i = 1, #ARGV do
  local claim = redis.call('HGET', KEYS[1], ARGV[i])
  if claim then
    local part, score, message = string.match(claim, '^(%S+) (%S+) (.*)$')
    if part == 'delayed' then
      redis.call('ZADD', of[part], score, message)
    else
      redis.call('RPUSH', of[part] or KEYS[2], message)
    end
    redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return redis.status_reply('OK')`

// Take returns the claims of an earlier run, and then claims more.
func (r *Redis) Take(ctx context.Context, limit int) ([]Message, error) {
	if r.earlier == nil {
		if err := r.resume(ctx); err != nil {
			return nil, err
		}
	}
	if len(r.earlier) > 0 {
		n := min(limit, len(r.earlier))
		taken := r.earlier[:n]
		r.earlier = r.earlier[n:]
		return taken, nil
	}
	for ; r.at < len(r.lists)*len(r.parts); r.at++ {
		taken, err := r.claim(ctx, r.lists[r.at/len(r.parts)], r.parts[r.at%len(r.parts)], limit)
		if err != nil || len(taken) > 0 {
			return taken, err
		}
	}
	return nil, nil
}

func (r *Redis) resume(ctx context.Context) error {
	r.earlier = []Message{}
	for _, l := range r.lists {
		if l.Left != "" {
			continue
		}
		claims, err := redis.StringMap(r.do(ctx, "HGETALL", l.claims()))
		if err != nil {
			return fmt.Errorf("redis: %s: %w", l.claims(), err)
		}
		for _, id := range slices.Sorted(maps.Keys(claims)) { // the ids sort by time
			m, err := l.message(id, claims[id])
			if err != nil {
				return err
			}
			r.earlier = append(r.earlier, m)
		}
	}
	return nil
}

func (r *Redis) claim(ctx context.Context, l Name, part Part, limit int) ([]Message, error) {
	why, err := r.held(ctx, l, part)
	if err != nil || why != "" {
		return nil, err
	}
	ids := make([]string, limit)
	arguments := []any{claimScript, 2, l.key(part), l.claims(), string(part)}
	for i := range ids {
		ids[i] = r.newID()
		arguments = append(arguments, ids[i])
	}
	claims, err := redis.Strings(r.do(ctx, "EVAL", arguments...))
	if err != nil {
		return nil, fmt.Errorf("redis: claim from %s: %w", l.key(part), err)
	}
	messages := make([]Message, 0, len(claims))
	for i, claim := range claims {
		m, err := l.message(ids[i], claim)
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

func (l Name) message(id, claim string) (Message, error) {
	words := strings.SplitN(claim, " ", 3)
	if len(words) < 3 {
		return Message{}, fmt.Errorf("redis: %s: %s is no claim", l.claims(), id)
	}
	m := Message{
		Handle: id, ID: id, Source: l.Source, Queue: l.Queue, Part: Part(words[0]), Body: []byte(words[2]),
	}
	if m.Part == Delayed {
		score, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			return m, fmt.Errorf("redis: %s: the score of %s is no number", l.claims(), id)
		}
		if m.Due = dueAt(score); m.Due.Year() > lastYear || m.Due.Year() < 1 {
			m.Odd = "its score is not a time before the year 10000"
		}
	}
	return m, nil
}

// milliseconds is the smallest score in milliseconds: as seconds it would be the year 5138.
const milliseconds = 1e11

// lastYear is the last year of a timestamp.
const lastYear = 9999

// dueAt returns the time of a score: Unix seconds, perhaps with a fraction, or Unix milliseconds.
func dueAt(score float64) time.Time {
	if math.Abs(score) >= milliseconds {
		score /= 1000
	}
	// Beyond these bounds the conversion to int64 is undefined.
	score = min(max(score, -milliseconds*10), milliseconds*10)
	whole, fraction := math.Modf(score)
	return time.Unix(int64(whole), int64(fraction*1e9)).UTC()
}

// Settle removes accepted messages from the claims. Refused ones stay claimed until Release.
func (r *Redis) Settle(ctx context.Context, accepted, refused []Message) error {
	for _, m := range refused {
		r.refused[m.Source] = append(r.refused[m.Source], m.Handle)
	}
	done := map[string][]any{}
	for _, m := range accepted {
		done[m.Source] = append(done[m.Source], m.Handle)
	}
	for source, ids := range done {
		if _, err := r.do(ctx, "HDEL", slices.Insert(ids, 0, any(source+imported))...); err != nil {
			return fmt.Errorf("redis: remove from %s: %w", source+imported, err)
		}
	}
	return nil
}

// Release puts the refused messages back to where they were taken from, and ends the connection.
func (r *Redis) Release(ctx context.Context) error {
	var failed error
	for _, l := range r.lists {
		failed = errors.Join(failed, r.putBack(ctx, l, r.refused[l.Source]))
	}
	return errors.Join(failed, r.connections.Close())
}

// PutBack puts all claims of an earlier run back. A message without an id may then be sent twice.
func (r *Redis) PutBack(ctx context.Context) (returned int, err error) {
	for _, l := range r.lists {
		claims, err := redis.Strings(r.do(ctx, "HKEYS", l.claims()))
		if err != nil {
			return returned, fmt.Errorf("redis: %s: %w", l.claims(), err)
		}
		if err := r.putBack(ctx, l, claims); err != nil {
			return returned, err
		}
		returned += len(claims)
	}
	return returned, nil
}

func (r *Redis) putBack(ctx context.Context, l Name, claims []string) error {
	// The oldest is put back last, because the last one is taken next.
	newest := slices.SortedFunc(slices.Values(claims), func(a, b string) int { return cmp.Compare(b, a) })
	for some := range slices.Chunk(newest, batchSize) {
		arguments := []any{
			returnScript, 5, l.claims(), l.key(Waiting), l.key(Claimed), l.key(Delayed), l.key(Failed),
		}
		for _, id := range some {
			arguments = append(arguments, id)
		}
		if _, err := r.do(ctx, "EVAL", arguments...); err != nil {
			return fmt.Errorf("redis: put back to %s: %w", l.Source, err)
		}
	}
	return nil
}
