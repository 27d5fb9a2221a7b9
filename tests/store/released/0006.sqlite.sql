BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0006');
CREATE TABLE audit (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at BIGINT NOT NULL, 
	user_name TEXT NOT NULL, 
	verb TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	group_name TEXT NOT NULL, 
	name TEXT NOT NULL, 
	object_id TEXT NOT NULL, 
	result TEXT NOT NULL, 
	detail TEXT
);
CREATE TABLE dependencies (
	workload_id TEXT NOT NULL, 
	after_id TEXT NOT NULL, 
	completed BOOLEAN NOT NULL, 
	PRIMARY KEY (workload_id, after_id), 
	FOREIGN KEY(workload_id) REFERENCES workloads (id) ON DELETE CASCADE
);
CREATE TABLE history (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	workload_id TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	message TEXT, 
	at BIGINT NOT NULL, 
	FOREIGN KEY(workload_id) REFERENCES workloads (id) ON DELETE CASCADE
);
INSERT INTO "history" VALUES(1,'arunning',1,'INSERTED','SUBMITTED',NULL,1794778275123);
INSERT INTO "history" VALUES(2,'anendeda',1,'INSERTED','SUBMITTED',NULL,1794778275123);
INSERT INTO "history" VALUES(3,'arunning',1,'QUEUED','NO_AVAILABLE_RESOURCES','no CPU is free',1794887905172);
INSERT INTO "history" VALUES(4,'anendeda',1,'ASSIGNED','PLACED',NULL,1794887905184);
INSERT INTO "history" VALUES(5,'anendeda',1,'LAUNCHING','PLACED',NULL,1794887905185);
INSERT INTO "history" VALUES(6,'anendeda',1,'RUNNING','PLACED',NULL,1794887905185);
INSERT INTO "history" VALUES(7,'anendeda',1,'EXITED','PLACED',NULL,1794887905185);
CREATE TABLE locks (
	node TEXT NOT NULL, 
	device TEXT NOT NULL, 
	workload_id TEXT NOT NULL, 
	since BIGINT NOT NULL, 
	PRIMARY KEY (node, device), 
	FOREIGN KEY(workload_id) REFERENCES workloads (id) ON DELETE CASCADE
);
CREATE TABLE mounts (
	workload_id TEXT NOT NULL, 
	volume_id TEXT NOT NULL, 
	active BOOLEAN NOT NULL, 
	PRIMARY KEY (workload_id, volume_id), 
	FOREIGN KEY(workload_id) REFERENCES workloads (id) ON DELETE CASCADE
);
INSERT INTO "mounts" VALUES('arunning','avolumea',1);
INSERT INTO "mounts" VALUES('anendeda','avolumea',0);
CREATE TABLE outbox (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	workload_id TEXT NOT NULL, 
	"to" TEXT NOT NULL, 
	doc TEXT NOT NULL, 
	tries INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	due_at BIGINT NOT NULL
);
CREATE TABLE registered (
	kind TEXT NOT NULL, 
	group_name TEXT NOT NULL, 
	name TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	doc TEXT NOT NULL, 
	PRIMARY KEY (kind, group_name, name)
);
CREATE TABLE submissions (
	user_name TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	object_id TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (user_name, "key")
);
INSERT INTO "submissions" VALUES('ann','2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683','digest','Workload','arunning',1794887905188);
CREATE TABLE tokens (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id TEXT NOT NULL, 
	user_name TEXT NOT NULL, 
	uid BIGINT, 
	runs_server BOOLEAN NOT NULL, 
	hash TEXT NOT NULL, 
	description TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	expires_at BIGINT, 
	last_used_at BIGINT, 
	UNIQUE (id), 
	UNIQUE (hash)
);
INSERT INTO "tokens" VALUES(1,'atokenaa','ann',1000,1,'hash','laptop',1794778275123,NULL,NULL);
CREATE TABLE units (
	workload_id TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	idx INTEGER NOT NULL, 
	rank INTEGER NOT NULL, 
	doc TEXT NOT NULL, 
	PRIMARY KEY (workload_id, attempt, idx, rank), 
	FOREIGN KEY(workload_id) REFERENCES workloads (id) ON DELETE CASCADE
);
INSERT INTO "units" VALUES('anendeda',1,0,0,'{"attempt":1,"index":0,"rank":0,"state":"EXITED","reason":null,"message":null,"exit_code":0,"started_at":null,"ended_at":"2026-11-15T21:31:15.123Z","peak_memory_bytes":null,"container":null,"node":null}');
CREATE TABLE usage (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	workload_id TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	group_name TEXT NOT NULL, 
	made_by TEXT NOT NULL, 
	places FLOAT NOT NULL, 
	gpus INTEGER NOT NULL, 
	cpus_milli BIGINT NOT NULL, 
	memory_bytes BIGINT NOT NULL, 
	began_at BIGINT NOT NULL, 
	ended_at BIGINT, 
	gpu_seen_ms BIGINT NOT NULL, 
	gpu_busy_ms BIGINT NOT NULL, 
	peak_memory_bytes BIGINT
);
INSERT INTO "usage" VALUES(1,'anendeda',1,'ann','ann',1.0,0,4000,0,1794887905184,1794887905185,0,0,NULL);
CREATE TABLE volumes (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id TEXT NOT NULL, 
	group_name TEXT NOT NULL, 
	made_by TEXT NOT NULL, 
	name TEXT NOT NULL, 
	phase TEXT NOT NULL, 
	uid BIGINT NOT NULL, 
	gid BIGINT NOT NULL, 
	account_user TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	doc TEXT NOT NULL, 
	UNIQUE (id)
);
INSERT INTO "volumes" VALUES(1,'avolumea','ann','ann','data','Pending',1000,1001,'ann',1794778275123,'{"id":"avolumea","name":"data","group":"ann","user":"ann","source":"claim","size":"10Gi","size_bytes":10737418240,"storage_class":"standard","access_modes":["ReadWriteOnce"],"phase":"Pending","message":null,"made":false,"storage":null,"sub_path":null,"readonly":false,"claim":null,"created_at":"2026-11-15T21:31:15.123Z"}');
CREATE TABLE workloads (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id TEXT NOT NULL, 
	group_name TEXT NOT NULL, 
	made_by TEXT NOT NULL, 
	name TEXT NOT NULL, 
	state TEXT NOT NULL, 
	wants TEXT NOT NULL, 
	active BOOLEAN NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	ended_at BIGINT, 
	summary TEXT NOT NULL, 
	doc TEXT NOT NULL, 
	expires_at BIGINT, 
	UNIQUE (id)
);
INSERT INTO "workloads" VALUES(1,'arunning','ann','ann','runs','QUEUED','RUN',1,1794778275123,1794887905172,NULL,'{"id":"arunning","name":"runs","group":"ann","namespace":"ann","user":"ann","status":"pending","state":"QUEUED","reason":"NO_AVAILABLE_RESOURCES","message":"no CPU is free","exit_code":null,"nodes":1,"hosts":[],"containers":[],"array":null,"cpus":"4","memory":null,"accelerators":null,"created_at":"2026-11-15T21:31:15.123Z","started_at":null,"ended_at":null,"updated_at":"2026-11-17T03:58:25.172Z"}','{"id":"arunning","name":"runs","group":"ann","namespace":"","user":"ann","account":{"uid":1000,"gid":1001,"user":"ann"},"spec":{"name":"runs","nodes":1,"array":null,"after":[],"queue":null,"resources":{"cpus_milli":4000,"memory_bytes":null,"disk_bytes":null,"requests":{"cpus_milli":null,"memory_bytes":null,"disk_bytes":null},"gpus":0,"gpu_products":[],"exclusive_cpus":false,"image":null},"selectors":{"node":null,"cpu_product":null,"labels":{},"spread":false},"labels":{},"envs":{"WHO":"wörld \u0000 🌊"},"mounts":[],"scratch":[],"workdir":null,"setup":null,"run":"echo hello","terminal":false,"ports":[],"max_duration":null,"stop_grace":null,"retries":0,"requeue":0,"restart":false,"ttl":null,"priority":0,"idle_timeout":null,"notify":[]},"volume_ids":{"/data":"avolumea"},"files":{},"venv":null,"notices":[],"session":false,"state":"QUEUED","reason":"NO_AVAILABLE_RESOURCES","message":"no CPU is free","wants":"RUN","after_ids":[],"max_duration":null,"attempt":1,"launched":0,"indexes":[],"progress":null,"retried":0,"requeued":0,"queued_at":null,"not_before":null,"gpus":[],"hosts":[],"containers":[],"cpusets":[],"counted":[],"master_port":null,"exit_code":null,"created_at":"2026-11-15T21:31:15.123Z","updated_at":"2026-11-17T03:58:25.172Z","started_at":null,"ended_at":null}',NULL);
INSERT INTO "workloads" VALUES(2,'anendeda','ann','ann','ended','EXITED','RUN',0,1794778275123,1794887905185,1794887905185,'{"id":"anendeda","name":"ended","group":"ann","namespace":"ann","user":"ann","status":"completed","state":"EXITED","reason":"PLACED","message":null,"exit_code":null,"nodes":1,"hosts":[],"containers":[],"array":null,"cpus":"4","memory":null,"accelerators":null,"created_at":"2026-11-15T21:31:15.123Z","started_at":null,"ended_at":"2026-11-17T03:58:25.185Z","updated_at":"2026-11-17T03:58:25.185Z"}','{"id":"anendeda","name":"ended","group":"ann","namespace":"","user":"ann","account":{"uid":1000,"gid":1001,"user":"ann"},"spec":{"name":"ended","nodes":1,"array":null,"after":[],"queue":null,"resources":{"cpus_milli":4000,"memory_bytes":null,"disk_bytes":null,"requests":{"cpus_milli":null,"memory_bytes":null,"disk_bytes":null},"gpus":0,"gpu_products":[],"exclusive_cpus":false,"image":null},"selectors":{"node":null,"cpu_product":null,"labels":{},"spread":false},"labels":{},"envs":{"WHO":"wörld \u0000 🌊"},"mounts":[],"scratch":[],"workdir":null,"setup":null,"run":"echo hello","terminal":false,"ports":[],"max_duration":null,"stop_grace":null,"retries":0,"requeue":0,"restart":false,"ttl":null,"priority":0,"idle_timeout":null,"notify":[]},"volume_ids":{"/data":"avolumea"},"files":{},"venv":null,"notices":[],"session":false,"state":"EXITED","reason":"PLACED","message":null,"wants":"RUN","after_ids":[],"max_duration":null,"attempt":1,"launched":0,"indexes":[],"progress":null,"retried":0,"requeued":0,"queued_at":null,"not_before":null,"gpus":[],"hosts":[],"containers":[],"cpusets":[],"counted":[],"master_port":null,"exit_code":null,"created_at":"2026-11-15T21:31:15.123Z","updated_at":"2026-11-17T03:58:25.185Z","started_at":null,"ended_at":"2026-11-17T03:58:25.185Z"}',NULL);
CREATE INDEX volumes_group ON volumes (group_name, seq);
CREATE UNIQUE INDEX volumes_name ON volumes (name, group_name) WHERE phase != 'Deleting';
CREATE INDEX volumes_phase ON volumes (phase, seq);
CREATE INDEX workloads_ended ON workloads (ended_at);
CREATE INDEX workloads_active ON workloads (seq) WHERE active IS 1;
CREATE INDEX workloads_name ON workloads (name, state, seq);
CREATE INDEX workloads_group_name ON workloads (group_name, name, state, seq);
CREATE INDEX workloads_group ON workloads (group_name, seq);
CREATE INDEX workloads_state ON workloads (state, seq);
CREATE INDEX workloads_expires ON workloads (expires_at);
CREATE INDEX workloads_group_state ON workloads (group_name, state, seq);
CREATE INDEX tokens_user ON tokens (user_name, seq);
CREATE INDEX submissions_created ON submissions (created_at);
CREATE INDEX audit_name ON audit (name, seq);
CREATE INDEX audit_user ON audit (user_name, seq);
CREATE TRIGGER audit_no_update BEFORE update ON audit BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
CREATE TRIGGER audit_no_delete BEFORE delete ON audit BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
CREATE INDEX outbox_due ON outbox (due_at);
CREATE INDEX usage_workload ON usage (workload_id, seq);
CREATE INDEX usage_group ON usage (group_name, ended_at);
CREATE INDEX usage_ended ON usage (ended_at);
CREATE INDEX history_workload ON history (workload_id, seq);
CREATE INDEX mounts_volume ON mounts (volume_id, active);
CREATE INDEX dependencies_after ON dependencies (after_id);
CREATE INDEX locks_workload ON locks (workload_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('volumes',1);
INSERT INTO "sqlite_sequence" VALUES('workloads',2);
INSERT INTO "sqlite_sequence" VALUES('history',7);
INSERT INTO "sqlite_sequence" VALUES('usage',1);
INSERT INTO "sqlite_sequence" VALUES('tokens',1);
COMMIT;
