-- Each state of a row, two of them of a worker that is at it or was, and one whose type no queue takes.
INSERT INTO event_queue (id, type, payload, priority, status, attempts, max_attempts, next_retry_at, error, updated_at) VALUES
	(1, 'quota_warning', '{"meter":"calls"}', 'normal', 'pending', 0, 3, NULL, NULL, now()),
	(2, 'quota_warning', '{"meter":"calls"}', 'normal', 'pending', 1, 2, '2026-11-22 13:30:00.5', 'once', now()),
	(3, 'api_sync', '{"api_id":"a"}', 'low', 'processing', 1, 5, NULL, NULL, now() - interval '1 hour'),
	(4, 'api_sync', '{"api_id":"b"}', 'high', 'processing', 1, 5, NULL, NULL, now() + interval '1 hour'),
	(5, 'api_sync', '{"api_id":"c"}', 'high', 'completed', 1, 5, NULL, NULL, now()),
	(6, 'api_sync', '{"api_id":"d"}', 'high', 'dead_letter', 5, 5, NULL, 'why', now()),
	(7, 'nobody', '{}', 'high', 'pending', 0, 5, NULL, NULL, now()),
	(8, 'api_sync', '{"api_id":"locked"}', 'high', 'pending', 0, 5, NULL, NULL, now());
