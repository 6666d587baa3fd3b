-- A store of schema version 2, with a plan, a job of two epochs, an acknowledgement, a template and an operation.
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
INSERT INTO "acknowledgements" VALUES('job',2,'0/0',3,1796031097048206);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
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
INSERT INTO "epochs" VALUES('job',1,1,'registered',NULL,NULL,1796031097037599,'57909e660c8f4e98a785b9adf1ed3756','a6e88e53189f8a760461378c5e4e34d86a5bbd84e72bc0b718146960d3af5f42',X'7B7D',X'7B2265706F6368223A317D');
INSERT INTO "epochs" VALUES('job',2,1,'event',NULL,NULL,1796031097042113,'51398f4680864283a82c930497c9195f','4e97acafba73ea4e5a3879ea3bc2db98667a3d31096b5cd4d43a40ad71576494',X'7B7D',X'7B2265706F6368223A327D');
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
INSERT INTO "events" VALUES('job',2,'k','rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr','c313de697d1cde528c9a2d11c384fe4d5ffc157f0defdff32f5413f078d1ebc4',X'7B7D');
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
INSERT INTO "job_revisions" VALUES('job',1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1,'all',1796031097020831,'b3098783dcb90e9805043797822a24eaabd97d9be24e3b68cea68574bb6dbdee',X'7B226E616D65223A226A6F62227D');
CREATE TABLE jobs (
	job_id VARCHAR(200) NOT NULL, 
	revision INTEGER NOT NULL, 
	current_epoch INTEGER NOT NULL, 
	last_epoch INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	PRIMARY KEY (job_id)
);
INSERT INTO "jobs" VALUES('job',1,2,2,1796031097020831,1796031097020831);
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
INSERT INTO "operations" VALUES('7ed411bf4cc74c0e86994b7f232a12cc','job','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','precompute','all',1,'queued',NULL,0,0,0,0,NULL,NULL,NULL,1796031097050307,1796031097050307,X'7B7D');
CREATE TABLE plans (
	plan_id VARCHAR(64) NOT NULL, 
	content BLOB NOT NULL, 
	content_sha256 VARCHAR(64) NOT NULL, 
	summary BLOB NOT NULL, 
	summary_sha256 VARCHAR(64) NOT NULL, 
	PRIMARY KEY (plan_id)
);
INSERT INTO "plans" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',X'706C616E','d6b5d920c4d242d497dc47aa688e7cc9d4829c3aabed6a5e93685e777922d503',X'73756D6D617279','d310a2d0f8fb6be2771f16d5b73078bc3cf8caadc8d85bd205d42be86221c013');
CREATE TABLE programs (
	plan_id VARCHAR(64) NOT NULL, 
	worker VARCHAR(24) NOT NULL, 
	content BLOB NOT NULL, 
	content_sha256 VARCHAR(64) NOT NULL, 
	PRIMARY KEY (plan_id, worker), 
	FOREIGN KEY(plan_id) REFERENCES plans (plan_id)
);
INSERT INTO "programs" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','0/0',X'7030','a4bb710bba5f0428401bfed047972acc75c04d4714ba123866c832c7e9dcbc29');
CREATE TABLE ranks (
	plan_id VARCHAR(64) NOT NULL, 
	rank VARCHAR(12) NOT NULL, 
	worker VARCHAR(24) NOT NULL, 
	PRIMARY KEY (plan_id, rank), 
	FOREIGN KEY(plan_id) REFERENCES plans (plan_id)
);
INSERT INTO "ranks" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','0','0/0');
CREATE TABLE replan_schema (
	version INTEGER NOT NULL
);
INSERT INTO "replan_schema" VALUES(2);
CREATE TABLE requests (
	request_sha256 VARCHAR(64) NOT NULL, 
	plan_id VARCHAR(64) NOT NULL, 
	PRIMARY KEY (request_sha256), 
	FOREIGN KEY(plan_id) REFERENCES plans (plan_id)
);
INSERT INTO "requests" VALUES('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
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
INSERT INTO "templates" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','7e4c73a9f795de6820aa394c5caf1a0f46aaea91255a443968b609b89ae5da96','296787caa1c5df813a47342783774c98fb8fe46bcbf6f3446a7b47f25c55c8e5','0,0,1,0',11,100,90,'list_scheduling',1.5,1796031097029379,'22d9f52976c5e81883383e9b29f4ad2569306f120c1ec56e8cafc35b685710b4',X'7061636B656420706C616E');
CREATE INDEX ix_epochs_template_sha256 ON epochs (template_sha256);
CREATE INDEX ix_operations_job_id ON operations (job_id);
COMMIT;
