// Runs http-cache-tests against a server, and prints what came of each test as JSON.
// Usage: node run.mjs BASE [ID…]; without names it runs all that are required, and what they depend on.
//
// The suite's own runner asks for all kinds of tests, a hundred at a time, over node-fetch. Here all
// wait at the same time, since most of what they do is to wait for pages to become stale.

import http from 'node:http'

import * as config from './suite/client/config.mjs'
import { makeCacheTest, testResults } from './suite/client/test.mjs'
import suites from './suite/tests/index.mjs'

// Milliseconds after which nothing more is expected of an answer.
const PATIENCE = 60000

class Headers {
  constructor (raw) {
    this.fields = new Map()
    for (let at = 0; at < raw.length; at += 2) this.append(raw[at], raw[at + 1])
  }

  append (name, value) {
    const key = name.toLowerCase()
    const before = this.fields.get(key)
    this.fields.set(key, before === undefined ? `${value}` : `${before}, ${value}`)
  }

  get (name) { return this.fields.get(name.toLowerCase()) ?? null }
  has (name) { return this.fields.has(name.toLowerCase()) }
  forEach (use) { this.fields.forEach((value, name) => use(value, name)) }
  [Symbol.iterator] () { return this.fields[Symbol.iterator]() }
}

// What the suite needs of fetch: no redirect is followed, nothing is decoded, no connection is kept.
function fetch (url, init = {}) {
  return new Promise((resolve, reject) => {
    const headers = new Headers(['Accept', '*/*', ...(init.headers ?? []).flat()])
    if (init.body !== undefined) headers.append('Content-Length', Buffer.byteLength(init.body))
    const options = { method: init.method ?? 'GET', headers: Object.fromEntries(headers), agent: false }
    const request = http.request(url, options, answer => {
      const chunks = []
      answer.on('data', chunk => chunks.push(chunk))
      answer.on('error', reject)
      answer.on('end', () => {
        const text = Buffer.concat(chunks).toString()
        resolve({
          status: answer.statusCode,
          statusText: answer.statusMessage,
          headers: new Headers(answer.rawHeaders),
          text: async () => text
        })
      })
    })
    request.setTimeout(PATIENCE, () => request.destroy(new Error('no answer')))
    request.on('error', reject)
    request.end(init.body)
  })
}

const known = new Map()
for (const suite of suites) {
  for (const test of suite.tests) known.set(test.id, { suite: suite.id, test })
}

const kindOf = test => test.kind ?? 'required'
const isRequired = test => kindOf(test) === 'required' && test.browser_only !== true

// With all that these depend on.
function withNeeds (names) {
  const wanted = new Set()
  const want = name => {
    if (wanted.has(name)) return
    wanted.add(name)
    known.get(name).test.depends_on?.forEach(want)
  }
  names.forEach(want)
  return [...wanted]
}

// A test has passed if those have on which it depends, as the suite's own pages count.
function passed (name) {
  const needs = known.get(name).test.depends_on ?? []
  return testResults[name] === true && needs.every(passed)
}

function verdict (name) {
  const result = testResults[name]
  if (passed(name)) return { word: 'passed', why: '' }
  if (result === true) return { word: 'needs', why: known.get(name).test.depends_on.find(need => !passed(need)) }
  return { word: result[0] === 'Setup' ? 'setup' : 'failed', why: `${result[1]}` }
}

const [base, ...asked] = process.argv.slice(2)
// What the suite says of a single test is for people; the outcomes are for who has started this.
console.log = console.error
const required = [...known.values()].map(entry => entry.test).filter(isRequired).map(test => test.id)
const names = withNeeds(asked.length > 0 ? asked : required)
config.setFetch(fetch)
config.setBaseUrl(base.replace(/\/$/, ''))
await Promise.all(names.map(name => {
  const { test } = known.get(name)
  if (asked.length > 0) test.dump = true
  return makeCacheTest(test)
}))
const rows = names.map(name => {
  const { suite, test } = known.get(name)
  return { id: name, suite, name: test.name, is_required: isRequired(test), ...verdict(name) }
})
process.stdout.write(JSON.stringify(rows, null, 2))
