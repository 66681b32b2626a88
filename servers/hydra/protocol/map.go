package protocol

import "flashdbm/servers/circle"

// Map says which shards there are, where, and whose each key is. It is the answer to a MAP.
type Map = circle.Map

// Place is one shard of a map.
type Place = circle.Place
