-- Whether any holder is to be ended. Expects holder_collect_at; read only.
SELECT EXISTS (SELECT FROM ebb.holder WHERE collect_at <= clock_timestamp())
