-- A store as the last version before the migrations left it, with one plan.
BEGIN TRANSACTION;
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
CREATE TABLE ranks (
	plan_id VARCHAR(64) NOT NULL, 
	rank VARCHAR(12) NOT NULL, 
	worker VARCHAR(24) NOT NULL, 
	PRIMARY KEY (plan_id, rank), 
	FOREIGN KEY(plan_id) REFERENCES plans (plan_id)
);
INSERT INTO "ranks" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','17','0/0');
CREATE TABLE replan_schema (
	version INTEGER NOT NULL
);
INSERT INTO "replan_schema" VALUES(1);
CREATE TABLE requests (
	request_sha256 VARCHAR(64) NOT NULL, 
	plan_id VARCHAR(64) NOT NULL, 
	PRIMARY KEY (request_sha256), 
	FOREIGN KEY(plan_id) REFERENCES plans (plan_id)
);
INSERT INTO "requests" VALUES('rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
COMMIT;
