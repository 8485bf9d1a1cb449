"""All experiments, in the order of the page."""

import b12_slow
import b13_slots
import b14_pictures
import b1_shop
import b2_api
import b3_cache
import b4_small
import b5_hop
import b6_hanging
import b7_crowd
import b9_leak
import backlog
import memory
import opcache
import timeouts
import workers

ALL = [
    each()
    for each in (
        workers.Workers,
        memory.Memory,
        backlog.Backlog,
        timeouts.TimeOuts,
        opcache.OpCache,
        b1_shop.Shop,
        b2_api.Api,
        b3_cache.Cache,
        b4_small.Small,
        b5_hop.Hop,
        b6_hanging.Hanging,
        b7_crowd.Crowd,
        b9_leak.Leak,
        b12_slow.Slow,
        b13_slots.Slots,
        b14_pictures.Pictures,
    )
]
