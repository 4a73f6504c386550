-- Whether each policy over subjects ($1) still goes by the columns that were meant when a `where` was proven to leave its soft-deleted
-- alone; asked under the table's lock. Index: anchor_pkey, pg_attribute_relid_attnam_index. Read only.
SELECT NOT EXISTS (SELECT FROM unnest($1::text[]) AS keeper (name) WHERE ebb.columns_moved('retain', keeper.name))
