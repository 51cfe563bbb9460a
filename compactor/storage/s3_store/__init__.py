"""S3 through botocore: conditional writes and unfinished uploads."""
