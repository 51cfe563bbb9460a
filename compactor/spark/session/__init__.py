"""One Spark session that the daemon's compactions share, and its JVM."""
