package push

import (
	"context"
	"log/slog"
	"net/http"

	"billhook/internal/deadletter"
	"billhook/internal/failpoint"
)

// deadLetter keeps one dead letter in the store. A store that is down is answered
// 503; the letter stays on its topic.
func (s *Service) deadLetter(w http.ResponseWriter, r *http.Request) {
	q, d, ok := s.admit(w, r)
	if !ok {
		return
	}
	defer d.release()
	ctx, cancel := context.WithTimeout(r.Context(), bookkeeping)
	defer cancel()
	failpoint.Hit(failpoint.LetterKeep)
	fresh, err := deadletter.Keep(ctx, s.config.Store, q.Queue, d.message, d.messageID, s.config.Now())
	if err != nil {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "dead letter not kept", slog.String("queue", q.ID),
			slog.String("message_id", d.messageID), slog.String("cause", cause(err)))
		errUnkept.Write(w)
		return
	}
	failpoint.Hit(failpoint.LetterKept)
	s.config.Log.LogAttrs(ctx, slog.LevelInfo, "dead letter kept", slog.String("queue", q.ID),
		slog.String("message_id", d.messageID), slog.Bool("new", fresh))
	w.WriteHeader(http.StatusNoContent)
}
