SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE FUNCTION public.audit_stays() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'the audit is only added to'; END $$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.audit (
    seq bigint NOT NULL,
    at bigint NOT NULL,
    user_name text NOT NULL,
    verb text NOT NULL,
    kind text NOT NULL,
    group_name text NOT NULL,
    name text NOT NULL,
    object_id text NOT NULL,
    result text NOT NULL,
    detail text
);
CREATE SEQUENCE public.audit_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.audit_seq_seq OWNED BY public.audit.seq;
CREATE TABLE public.dependencies (
    workload_id text NOT NULL,
    after_id text NOT NULL,
    completed boolean NOT NULL
);
CREATE TABLE public.history (
    seq bigint NOT NULL,
    workload_id text NOT NULL,
    attempt integer NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    message text,
    at bigint NOT NULL
);
CREATE SEQUENCE public.history_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.history_seq_seq OWNED BY public.history.seq;
CREATE TABLE public.locks (
    node text NOT NULL,
    device text NOT NULL,
    workload_id text NOT NULL,
    since bigint NOT NULL
);
CREATE TABLE public.mounts (
    workload_id text NOT NULL,
    volume_id text NOT NULL,
    active boolean NOT NULL
);
CREATE TABLE public.outbox (
    seq bigint NOT NULL,
    workload_id text NOT NULL,
    "to" text NOT NULL,
    doc text NOT NULL,
    tries integer NOT NULL,
    created_at bigint NOT NULL,
    due_at bigint NOT NULL
);
CREATE SEQUENCE public.outbox_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.outbox_seq_seq OWNED BY public.outbox.seq;
CREATE TABLE public.registered (
    kind text NOT NULL,
    group_name text NOT NULL,
    name text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    doc text NOT NULL
);
CREATE TABLE public.submissions (
    user_name text NOT NULL,
    key text NOT NULL,
    digest text NOT NULL,
    kind text NOT NULL,
    object_id text NOT NULL,
    created_at bigint NOT NULL
);
CREATE TABLE public.tokens (
    seq bigint NOT NULL,
    id text NOT NULL,
    user_name text NOT NULL,
    uid bigint,
    runs_server boolean NOT NULL,
    hash text NOT NULL,
    description text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    last_used_at bigint
);
CREATE SEQUENCE public.tokens_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.tokens_seq_seq OWNED BY public.tokens.seq;
CREATE TABLE public.units (
    workload_id text NOT NULL,
    attempt integer NOT NULL,
    idx integer NOT NULL,
    rank integer NOT NULL,
    doc text NOT NULL
);
CREATE TABLE public.usage (
    seq bigint NOT NULL,
    workload_id text NOT NULL,
    attempt integer NOT NULL,
    group_name text NOT NULL,
    made_by text NOT NULL,
    places double precision NOT NULL,
    gpus integer NOT NULL,
    cpus_milli bigint NOT NULL,
    memory_bytes bigint NOT NULL,
    began_at bigint NOT NULL,
    ended_at bigint,
    gpu_seen_ms bigint NOT NULL,
    gpu_busy_ms bigint NOT NULL,
    peak_memory_bytes bigint
);
CREATE SEQUENCE public.usage_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.usage_seq_seq OWNED BY public.usage.seq;
CREATE TABLE public.volumes (
    seq bigint NOT NULL,
    id text NOT NULL,
    group_name text NOT NULL,
    made_by text NOT NULL,
    name text NOT NULL,
    phase text NOT NULL,
    uid bigint NOT NULL,
    gid bigint NOT NULL,
    account_user text NOT NULL,
    created_at bigint NOT NULL,
    doc text NOT NULL
);
CREATE SEQUENCE public.volumes_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.volumes_seq_seq OWNED BY public.volumes.seq;
CREATE TABLE public.workloads (
    seq bigint NOT NULL,
    id text NOT NULL,
    group_name text NOT NULL,
    made_by text NOT NULL,
    name text NOT NULL,
    state text NOT NULL,
    wants text NOT NULL,
    active boolean NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    ended_at bigint,
    summary text NOT NULL,
    doc text NOT NULL,
    expires_at bigint
);
CREATE SEQUENCE public.workloads_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.workloads_seq_seq OWNED BY public.workloads.seq;
ALTER TABLE ONLY public.audit ALTER COLUMN seq SET DEFAULT nextval('public.audit_seq_seq'::regclass);
ALTER TABLE ONLY public.history ALTER COLUMN seq SET DEFAULT nextval('public.history_seq_seq'::regclass);
ALTER TABLE ONLY public.outbox ALTER COLUMN seq SET DEFAULT nextval('public.outbox_seq_seq'::regclass);
ALTER TABLE ONLY public.tokens ALTER COLUMN seq SET DEFAULT nextval('public.tokens_seq_seq'::regclass);
ALTER TABLE ONLY public.usage ALTER COLUMN seq SET DEFAULT nextval('public.usage_seq_seq'::regclass);
ALTER TABLE ONLY public.volumes ALTER COLUMN seq SET DEFAULT nextval('public.volumes_seq_seq'::regclass);
ALTER TABLE ONLY public.workloads ALTER COLUMN seq SET DEFAULT nextval('public.workloads_seq_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('0006');
INSERT INTO public.history VALUES (1, 'arunning', 1, 'INSERTED', 'SUBMITTED', NULL, 1794778275123);
INSERT INTO public.history VALUES (2, 'anendeda', 1, 'INSERTED', 'SUBMITTED', NULL, 1794778275123);
INSERT INTO public.history VALUES (3, 'arunning', 1, 'QUEUED', 'NO_AVAILABLE_RESOURCES', 'no CPU is free', 1794887906532);
INSERT INTO public.history VALUES (4, 'anendeda', 1, 'ASSIGNED', 'PLACED', NULL, 1794887906540);
INSERT INTO public.history VALUES (5, 'anendeda', 1, 'LAUNCHING', 'PLACED', NULL, 1794887906545);
INSERT INTO public.history VALUES (6, 'anendeda', 1, 'RUNNING', 'PLACED', NULL, 1794887906546);
INSERT INTO public.history VALUES (7, 'anendeda', 1, 'EXITED', 'PLACED', NULL, 1794887906547);
INSERT INTO public.mounts VALUES ('arunning', 'avolumea', true);
INSERT INTO public.mounts VALUES ('anendeda', 'avolumea', false);
INSERT INTO public.submissions VALUES ('ann', '2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683', 'digest', 'Workload', 'arunning', 1794887906553);
INSERT INTO public.tokens VALUES (1, 'atokenaa', 'ann', 1000, true, 'hash', 'laptop', 1794778275123, NULL, NULL);
INSERT INTO public.units VALUES ('anendeda', 1, 0, 0, '{"attempt":1,"index":0,"rank":0,"state":"EXITED","reason":null,"message":null,"exit_code":0,"started_at":null,"ended_at":"2026-11-15T21:31:15.123Z","peak_memory_bytes":null,"container":null,"node":null}');
INSERT INTO public.usage VALUES (1, 'anendeda', 1, 'ann', 'ann', 1, 0, 4000, 0, 1794887906540, 1794887906547, 0, 0, NULL);
INSERT INTO public.volumes VALUES (1, 'avolumea', 'ann', 'ann', 'data', 'Pending', 1000, 1001, 'ann', 1794778275123, '{"id":"avolumea","name":"data","group":"ann","user":"ann","source":"claim","size":"10Gi","size_bytes":10737418240,"storage_class":"standard","access_modes":["ReadWriteOnce"],"phase":"Pending","message":null,"made":false,"storage":null,"sub_path":null,"readonly":false,"claim":null,"created_at":"2026-11-15T21:31:15.123Z"}');
INSERT INTO public.workloads VALUES (1, 'arunning', 'ann', 'ann', 'runs', 'QUEUED', 'RUN', true, 1794778275123, 1794887906532, NULL, '{"id":"arunning","name":"runs","group":"ann","namespace":"ann","user":"ann","status":"pending","state":"QUEUED","reason":"NO_AVAILABLE_RESOURCES","message":"no CPU is free","exit_code":null,"nodes":1,"hosts":[],"containers":[],"array":null,"cpus":"4","memory":null,"accelerators":null,"created_at":"2026-11-15T21:31:15.123Z","started_at":null,"ended_at":null,"updated_at":"2026-11-17T03:58:26.532Z"}', '{"id":"arunning","name":"runs","group":"ann","namespace":"","user":"ann","account":{"uid":1000,"gid":1001,"user":"ann"},"spec":{"name":"runs","nodes":1,"array":null,"after":[],"queue":null,"resources":{"cpus_milli":4000,"memory_bytes":null,"disk_bytes":null,"requests":{"cpus_milli":null,"memory_bytes":null,"disk_bytes":null},"gpus":0,"gpu_products":[],"exclusive_cpus":false,"image":null},"selectors":{"node":null,"cpu_product":null,"labels":{},"spread":false},"labels":{},"envs":{"WHO":"wörld \u0000 🌊"},"mounts":[],"scratch":[],"workdir":null,"setup":null,"run":"echo hello","terminal":false,"ports":[],"max_duration":null,"stop_grace":null,"retries":0,"requeue":0,"restart":false,"ttl":null,"priority":0,"idle_timeout":null,"notify":[]},"volume_ids":{"/data":"avolumea"},"files":{},"venv":null,"notices":[],"session":false,"state":"QUEUED","reason":"NO_AVAILABLE_RESOURCES","message":"no CPU is free","wants":"RUN","after_ids":[],"max_duration":null,"attempt":1,"launched":0,"indexes":[],"progress":null,"retried":0,"requeued":0,"queued_at":null,"not_before":null,"gpus":[],"hosts":[],"containers":[],"cpusets":[],"counted":[],"master_port":null,"exit_code":null,"created_at":"2026-11-15T21:31:15.123Z","updated_at":"2026-11-17T03:58:26.532Z","started_at":null,"ended_at":null}', NULL);
INSERT INTO public.workloads VALUES (2, 'anendeda', 'ann', 'ann', 'ended', 'EXITED', 'RUN', false, 1794778275123, 1794887906547, 1794887906547, '{"id":"anendeda","name":"ended","group":"ann","namespace":"ann","user":"ann","status":"completed","state":"EXITED","reason":"PLACED","message":null,"exit_code":null,"nodes":1,"hosts":[],"containers":[],"array":null,"cpus":"4","memory":null,"accelerators":null,"created_at":"2026-11-15T21:31:15.123Z","started_at":null,"ended_at":"2026-11-17T03:58:26.547Z","updated_at":"2026-11-17T03:58:26.547Z"}', '{"id":"anendeda","name":"ended","group":"ann","namespace":"","user":"ann","account":{"uid":1000,"gid":1001,"user":"ann"},"spec":{"name":"ended","nodes":1,"array":null,"after":[],"queue":null,"resources":{"cpus_milli":4000,"memory_bytes":null,"disk_bytes":null,"requests":{"cpus_milli":null,"memory_bytes":null,"disk_bytes":null},"gpus":0,"gpu_products":[],"exclusive_cpus":false,"image":null},"selectors":{"node":null,"cpu_product":null,"labels":{},"spread":false},"labels":{},"envs":{"WHO":"wörld \u0000 🌊"},"mounts":[],"scratch":[],"workdir":null,"setup":null,"run":"echo hello","terminal":false,"ports":[],"max_duration":null,"stop_grace":null,"retries":0,"requeue":0,"restart":false,"ttl":null,"priority":0,"idle_timeout":null,"notify":[]},"volume_ids":{"/data":"avolumea"},"files":{},"venv":null,"notices":[],"session":false,"state":"EXITED","reason":"PLACED","message":null,"wants":"RUN","after_ids":[],"max_duration":null,"attempt":1,"launched":0,"indexes":[],"progress":null,"retried":0,"requeued":0,"queued_at":null,"not_before":null,"gpus":[],"hosts":[],"containers":[],"cpusets":[],"counted":[],"master_port":null,"exit_code":null,"created_at":"2026-11-15T21:31:15.123Z","updated_at":"2026-11-17T03:58:26.547Z","started_at":null,"ended_at":"2026-11-17T03:58:26.547Z"}', NULL);
SELECT pg_catalog.setval('public.audit_seq_seq', 1, false);
SELECT pg_catalog.setval('public.history_seq_seq', 7, true);
SELECT pg_catalog.setval('public.outbox_seq_seq', 1, false);
SELECT pg_catalog.setval('public.tokens_seq_seq', 1, true);
SELECT pg_catalog.setval('public.usage_seq_seq', 1, true);
SELECT pg_catalog.setval('public.volumes_seq_seq', 1, true);
SELECT pg_catalog.setval('public.workloads_seq_seq', 2, true);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.dependencies
    ADD CONSTRAINT dependencies_pkey PRIMARY KEY (workload_id, after_id);
ALTER TABLE ONLY public.history
    ADD CONSTRAINT history_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.locks
    ADD CONSTRAINT locks_pkey PRIMARY KEY (node, device);
ALTER TABLE ONLY public.mounts
    ADD CONSTRAINT mounts_pkey PRIMARY KEY (workload_id, volume_id);
ALTER TABLE ONLY public.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.registered
    ADD CONSTRAINT registered_pkey PRIMARY KEY (kind, group_name, name);
ALTER TABLE ONLY public.submissions
    ADD CONSTRAINT submissions_pkey PRIMARY KEY (user_name, key);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_hash_key UNIQUE (hash);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_id_key UNIQUE (id);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.units
    ADD CONSTRAINT units_pkey PRIMARY KEY (workload_id, attempt, idx, rank);
ALTER TABLE ONLY public.usage
    ADD CONSTRAINT usage_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.volumes
    ADD CONSTRAINT volumes_id_key UNIQUE (id);
ALTER TABLE ONLY public.volumes
    ADD CONSTRAINT volumes_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.workloads
    ADD CONSTRAINT workloads_id_key UNIQUE (id);
ALTER TABLE ONLY public.workloads
    ADD CONSTRAINT workloads_pkey PRIMARY KEY (seq);
CREATE INDEX audit_name ON public.audit USING btree (name, seq);
CREATE INDEX audit_user ON public.audit USING btree (user_name, seq);
CREATE INDEX dependencies_after ON public.dependencies USING btree (after_id);
CREATE INDEX history_workload ON public.history USING btree (workload_id, seq);
CREATE INDEX locks_workload ON public.locks USING btree (workload_id);
CREATE INDEX mounts_volume ON public.mounts USING btree (volume_id, active);
CREATE INDEX outbox_due ON public.outbox USING btree (due_at);
CREATE INDEX submissions_created ON public.submissions USING btree (created_at);
CREATE INDEX tokens_user ON public.tokens USING btree (user_name, seq);
CREATE INDEX usage_ended ON public.usage USING btree (ended_at);
CREATE INDEX usage_group ON public.usage USING btree (group_name, ended_at);
CREATE INDEX usage_workload ON public.usage USING btree (workload_id, seq);
CREATE INDEX volumes_group ON public.volumes USING btree (group_name, seq);
CREATE UNIQUE INDEX volumes_name ON public.volumes USING btree (name, group_name) WHERE (phase <> 'Deleting'::text);
CREATE INDEX volumes_phase ON public.volumes USING btree (phase, seq);
CREATE INDEX workloads_active ON public.workloads USING btree (seq) WHERE (active IS TRUE);
CREATE INDEX workloads_ended ON public.workloads USING btree (ended_at);
CREATE INDEX workloads_expires ON public.workloads USING btree (expires_at);
CREATE INDEX workloads_group ON public.workloads USING btree (group_name, seq);
CREATE INDEX workloads_group_name ON public.workloads USING btree (group_name, name, state, seq);
CREATE INDEX workloads_group_state ON public.workloads USING btree (group_name, state, seq);
CREATE INDEX workloads_name ON public.workloads USING btree (name, state, seq);
CREATE INDEX workloads_state ON public.workloads USING btree (state, seq);
CREATE TRIGGER audit_stays BEFORE DELETE OR UPDATE OR TRUNCATE ON public.audit FOR EACH STATEMENT EXECUTE FUNCTION public.audit_stays();
ALTER TABLE ONLY public.dependencies
    ADD CONSTRAINT dependencies_workload_id_fkey FOREIGN KEY (workload_id) REFERENCES public.workloads(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.history
    ADD CONSTRAINT history_workload_id_fkey FOREIGN KEY (workload_id) REFERENCES public.workloads(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.locks
    ADD CONSTRAINT locks_workload_id_fkey FOREIGN KEY (workload_id) REFERENCES public.workloads(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.mounts
    ADD CONSTRAINT mounts_workload_id_fkey FOREIGN KEY (workload_id) REFERENCES public.workloads(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.units
    ADD CONSTRAINT units_workload_id_fkey FOREIGN KEY (workload_id) REFERENCES public.workloads(id) ON DELETE CASCADE;
