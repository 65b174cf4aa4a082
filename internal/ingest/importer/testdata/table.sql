-- The table of an event queue, as the programs of old make it.
CREATE TABLE event_queue (
	id serial PRIMARY KEY, type varchar(100) NOT NULL, payload text NOT NULL, priority varchar(20) DEFAULT 'normal', status varchar(20) DEFAULT 'pending',
	attempts integer DEFAULT 0, max_attempts integer DEFAULT 5, next_retry_at timestamp, error text, created_at timestamp DEFAULT now(),
	updated_at timestamp DEFAULT now(), processed_at timestamp);
