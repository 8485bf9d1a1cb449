<?php
// request: GET {self}
