-- Rows that are odd, between four good ones and one that a worker may be at.
INSERT INTO event_queue (id, type, payload, status, attempts, max_attempts, next_retry_at, created_at, updated_at) VALUES
	(-2147483648, 'quota_warning', '{}', 'pending', 0, 3, NULL, now(), now()),
	(-7, 'quota_warning', '{}', 'pending', NULL, NULL, NULL, NULL, NULL),
	(0, 'quota_warning', '{}', 'pending', 0, 3, NULL, now(), now()),
	(1, 'quota_warning', '{}', 'pending', 0, 3, 'infinity', now(), now()),
	(2, 'quota_warning', '{}', 'pending', 0, 3, '-infinity', now(), now()),
	(3, 'quota_warning', '{}', 'pending', 0, 3, NULL, 'infinity', now()),
	(4, NULL, '{}', 'pending', 0, 3, NULL, now(), now()),
	(5, 'quota_warning', NULL, 'pending', 0, 3, NULL, now(), now()),
	(6, 'quota_warning', '{}', NULL, 0, 3, NULL, now(), now()),
	(7, 'quota_warning', '{}', 'processing', 0, 3, NULL, now(), NULL),
	(8, 'quota_warning', '{}', 'processing', 0, 3, NULL, now(), 'infinity'),
	(9, 'quota_warning', '{}', 'processing', 0, 3, NULL, now(), now()),
	(2147483647, 'quota_warning', '{}', 'pending', 0, 3, NULL, now(), now());
