-- A store of schema version 3, with a plan, its programs and ranks, a job of two epochs and a template.
BEGIN TRANSACTION;
CREATE TABLE acknowledgements (
	job_id VARCHAR(200) NOT NULL, 
	epoch INTEGER NOT NULL, 
	worker VARCHAR(24) NOT NULL, 
	iteration BIGINT, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (job_id, epoch, worker), 
	FOREIGN KEY(job_id, epoch) REFERENCES epochs (job_id, epoch) ON DELETE CASCADE
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE api_keys (
	key_id VARCHAR(64) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	scopes VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	created_at BIGINT NOT NULL, 
	revoked_at BIGINT, 
	PRIMARY KEY (key_id)
);
CREATE TABLE epochs (
	job_id VARCHAR(200) NOT NULL, 
	epoch INTEGER NOT NULL, 
	revision INTEGER NOT NULL, 
	cause VARCHAR(16) NOT NULL, 
	failure_key TEXT, 
	template_sha256 VARCHAR(64), 
	created_at BIGINT NOT NULL, 
	attempt VARCHAR(32) NOT NULL, 
	checksum VARCHAR(64) NOT NULL, 
	state BLOB NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (job_id, epoch), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "epochs" VALUES('job',1,1,'registered',NULL,NULL,1796050292878386,'fc514f9e44a44224b5d5dcdd53e49edf','9309e0d2058c9736f0c659e5d2f2ebd7d7de772a5f93fdbdffbc40e0dd626346',X'7B7D',X'7B2265706F6368223A317D');
INSERT INTO "epochs" VALUES('job',2,1,'event',NULL,NULL,1796050292889396,'d6f639f49d4f4935bb4cbee603c75aea','f35b59a3cc82553646403dcbcb772cd8006fe34c9bd080a19c0b7b343b0c6dea',X'7B7D',X'7B2265706F6368223A327D');
CREATE TABLE events (
	job_id VARCHAR(200) NOT NULL, 
	epoch INTEGER NOT NULL, 
	idempotency_key VARCHAR(256), 
	request_sha256 VARCHAR(64), 
	checksum VARCHAR(64) NOT NULL, 
	event BLOB, 
	PRIMARY KEY (job_id, epoch), 
	FOREIGN KEY(job_id, epoch) REFERENCES epochs (job_id, epoch) ON DELETE CASCADE, 
	CONSTRAINT uq_events_idempotency_key UNIQUE (job_id, idempotency_key)
);
CREATE TABLE job_revisions (
	job_id VARCHAR(200) NOT NULL, 
	revision INTEGER NOT NULL, 
	job_sha256 VARCHAR(64) NOT NULL, 
	tolerance INTEGER NOT NULL, 
	mode VARCHAR(16), 
	created_at BIGINT NOT NULL, 
	checksum VARCHAR(64) NOT NULL, 
	document BLOB NOT NULL, 
	PRIMARY KEY (job_id, revision), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
INSERT INTO "job_revisions" VALUES('job',1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1,'all',1796050292852056,'b3098783dcb90e9805043797822a24eaabd97d9be24e3b68cea68574bb6dbdee',X'7B226E616D65223A226A6F62227D');
CREATE TABLE jobs (
	job_id VARCHAR(200) NOT NULL, 
	revision INTEGER NOT NULL, 
	current_epoch INTEGER NOT NULL, 
	last_epoch INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	PRIMARY KEY (job_id)
);
INSERT INTO "jobs" VALUES('job',1,2,2,1796050292852056,1796050292852056);
CREATE TABLE operations (
	operation_id VARCHAR(64) NOT NULL, 
	job_id VARCHAR(200), 
	job_sha256 VARCHAR(64) NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	mode VARCHAR(16) NOT NULL, 
	tolerance INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	total INTEGER, 
	done INTEGER NOT NULL, 
	failed INTEGER NOT NULL, 
	skipped INTEGER NOT NULL, 
	cancel_requested BOOLEAN NOT NULL, 
	owner VARCHAR(200), 
	lease_until BIGINT, 
	error TEXT, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	options BLOB NOT NULL, 
	PRIMARY KEY (operation_id), 
	FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
);
CREATE TABLE plans (
	plan_id VARCHAR(64) NOT NULL, 
	content BLOB NOT NULL, 
	content_sha256 VARCHAR(64) NOT NULL, 
	summary BLOB NOT NULL, 
	summary_sha256 VARCHAR(64) NOT NULL, 
	PRIMARY KEY (plan_id)
);
INSERT INTO "plans" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',X'706C616E','d6b5d920c4d242d497dc47aa688e7cc9d4829c3aabed6a5e93685e777922d503',X'73756D6D617279206F6620706C616E','a9828bfce1dfde2d13b1f0f0917d2956bc42c55856fedba7e536ce254196d227');
CREATE TABLE programs (
	plan_id VARCHAR(64) NOT NULL, 
	worker VARCHAR(24) NOT NULL, 
	content BLOB NOT NULL, 
	content_sha256 VARCHAR(64) NOT NULL, 
	PRIMARY KEY (plan_id, worker), 
	FOREIGN KEY(plan_id) REFERENCES plans (plan_id)
);
INSERT INTO "programs" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','0/0',X'7030','a4bb710bba5f0428401bfed047972acc75c04d4714ba123866c832c7e9dcbc29');
INSERT INTO "programs" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','1/0',X'7031','97d5138e17c97db8ea34ac82a8b7ec1630a120a74941fd7bf7ac35b531ba6dd0');
CREATE TABLE ranks (
	plan_id VARCHAR(64) NOT NULL, 
	rank VARCHAR(12) NOT NULL, 
	worker VARCHAR(24) NOT NULL, 
	PRIMARY KEY (plan_id, rank), 
	FOREIGN KEY(plan_id) REFERENCES plans (plan_id)
);
INSERT INTO "ranks" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','0','0/0');
INSERT INTO "ranks" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','1','1/0');
INSERT INTO "ranks" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','17','0/0');
CREATE TABLE replan_schema (
	version INTEGER NOT NULL
);
INSERT INTO "replan_schema" VALUES(3);
CREATE TABLE requests (
	request_sha256 VARCHAR(64) NOT NULL, 
	plan_id VARCHAR(64) NOT NULL, 
	PRIMARY KEY (request_sha256), 
	FOREIGN KEY(plan_id) REFERENCES plans (plan_id)
);
INSERT INTO "requests" VALUES('rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
CREATE TABLE retired_jobs (
	job_id VARCHAR(200) NOT NULL, 
	last_epoch INTEGER NOT NULL, 
	PRIMARY KEY (job_id)
);
CREATE TABLE templates (
	job_sha256 VARCHAR(64) NOT NULL, 
	key_sha256 VARCHAR(64) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	failure_key TEXT NOT NULL, 
	size INTEGER NOT NULL, 
	period_ns BIGINT NOT NULL, 
	bound_ns BIGINT NOT NULL, 
	solver VARCHAR(64) NOT NULL, 
	deadline_s FLOAT NOT NULL, 
	created_at BIGINT NOT NULL, 
	checksum VARCHAR(64) NOT NULL, 
	content BLOB NOT NULL, 
	PRIMARY KEY (job_sha256, key_sha256, sha256)
);
INSERT INTO "templates" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','7e4c73a9f795de6820aa394c5caf1a0f46aaea91255a443968b609b89ae5da96','296787caa1c5df813a47342783774c98fb8fe46bcbf6f3446a7b47f25c55c8e5','0,0,1,0',11,100,90,'list_scheduling',1.5,1796050292864140,'22d9f52976c5e81883383e9b29f4ad2569306f120c1ec56e8cafc35b685710b4',X'7061636B656420706C616E');
CREATE TABLE uses (
	kind VARCHAR(16) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	used_at BIGINT NOT NULL, 
	PRIMARY KEY (kind, name)
);
INSERT INTO "uses" VALUES('plan','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1796050292847771);
CREATE INDEX ix_epochs_template_sha256 ON epochs (template_sha256);
CREATE INDEX ix_operations_job_id ON operations (job_id);
COMMIT;
