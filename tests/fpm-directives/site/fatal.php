<?php
// Fails before anything has been sent.
throw new RuntimeException('on purpose');
