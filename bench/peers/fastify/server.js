// The same endpoint in Fastify: fast-jwt, ioredis with auto-pipelining, one EVALSHA a request; one process per core.
import cluster from 'node:cluster'
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import Fastify from 'fastify'
import { createVerifier } from 'fast-jwt'
import { Redis } from 'ioredis'

const { PORT, WORKERS, REDIS_URL, JWT_SIGNING_KEY, SEIZE_LUA } = process.env

const CODES = {
  '-1': ['LIMIT_REACHED', 409, 'You already have as many coupons of this activity as one shopper may.'],
  '-2': ['SOLD_OUT', 409, 'All coupons of this activity are gone.'],
  '-3': ['NOT_STARTED', 409, 'This activity has not started yet.'],
  '-4': ['ENDED', 410, 'This activity has ended.'],
  '-5': ['PAUSED', 409, 'This activity is paused. Please try again later.'],
  '-6': ['VOIDED', 410, 'This activity was withdrawn.'],
  '-7': ['UNKNOWN_ACTIVITY', 404, 'There is no such activity.'],
  '-8': ['NOT_READY', 503, 'Not ready yet. Nothing happened: please try again shortly.']
}
const string = { type: 'string' }
const integer = { type: 'integer' }
// Schemas of the answers let Fastify compile its own serializers.
const won = {
  type: 'object',
  properties: {
    code: string, activity_id: string, seq: integer, seized_at: string, state: string, claim_url: string, server_time: string
  }
}
const problemSchema = {
  type: 'object',
  properties: {
    type: string, title: string, status: integer, code: string, instance: string, activity_id: string,
    server_time: string, held: integer, claim_url: string
  }
}
const schema = {
  body: {
    type: 'object',
    required: ['id'],
    additionalProperties: false,
    properties: {
      id: { type: 'string', pattern: '^[1-9][0-9]{0,18}$' },
      seq: { type: 'integer', minimum: 1, maximum: 1000000 }
    }
  },
  response: { '2xx': won, '4xx': problemSchema, '5xx': problemSchema }
}

function problem (code, status, title) {
  const type = `urn:problem:${code.toLowerCase().replaceAll('_', '-')}`
  return { type, title, status, code, instance: randomUUID() }
}

function keysOf (id) {
  const shard = id.at(-1) // ids are decimal: the last digit is the remainder by ten
  return [
    `COUPON:SHARD:{${shard}}`,
    `COUPON:ACTIVITY:RULES:{${shard}}:${id}`,
    `COUPON:RESOURCE:STOCK:{${shard}}`,
    `COUPON:SEIZE:LIST:{${shard}}:${id}`,
    `QUEUE:COUPON:SEIZE:SYNC:{${shard}}`,
    `COUPON:LISTED:{${shard}}:${id}`,
    `COUPON:STAFF:{${shard}}`,
    `COUPON:ASKED:{${shard}}:${id}:0`,
    `COUPON:ASKED:{${shard}}:${id}:1`
  ]
}

const time = (unixMs) => new Date(unixMs).toISOString()

async function serve () {
  const redis = new Redis(REDIS_URL, { enableAutoPipelining: true })
  redis.defineCommand('seize', { numberOfKeys: 9, lua: readFileSync(SEIZE_LUA, 'utf8') })
  // No cache: every token comes once, so it would only cost.
  const verify = createVerifier({ key: JWT_SIGNING_KEY, algorithms: ['HS256'], requiredClaims: ['exp', 'user_id'], cache: false })
  // Strict like every contender: a number is no string, and an unknown field is an error instead of being dropped.
  const ajv = { customOptions: { coerceTypes: false, removeAdditional: false } }
  const app = Fastify({ logger: false, ajv })

  app.setErrorHandler((error, _request, reply) => {
    const status = error.statusCode ?? 500
    const code = status === 401 ? 'UNAUTHENTICATED' : status < 500 ? 'INVALID_REQUEST' : 'INTERNAL_ERROR'
    reply.code(status).type('application/problem+json').send(problem(code, status, error.message))
  })

  app.post('/market/consumer/coupon/seize', {
    schema,
    onRequest: async (request) => {
      const header = request.headers.authorization ?? ''
      let claims = null
      try {
        claims = header.startsWith('Bearer ') ? verify(header.slice(7)) : null
      } catch {}
      if (claims?.token_type !== 'access') {
        throw Object.assign(new Error('Please log in.'), { statusCode: 401 })
      }
      request.userId = String(claims.user_id)
    }
  }, async (request, reply) => {
    const { id, seq = 0 } = request.body
    const [nowMs, , entry] = await redis.seize(...keysOf(id), id, 0, request.userId, seq, 0)
    const now = time(nowMs)
    const claimUrl = `/market/consumer/activity/${id}/claim`
    reply.header('cache-control', 'no-store')
    if (entry.length === 4) {
      const body = { code: 'SEIZED', activity_id: id, seq: entry[1], state: 'settled', claim_url: claimUrl, server_time: now }
      if (entry[2]) {
        body.state = 'pending'
        body.seized_at = time(entry[2])
      }
      return reply.code(entry[3] ? 200 : 201).send(body)
    }
    const body = problem(...CODES[entry[0]])
    body.activity_id = id
    body.server_time = now
    if (entry[0] === -1) {
      body.held = entry[1]
      body.claim_url = claimUrl
    }
    return reply.code(body.status).type('application/problem+json').send(body)
  })

  app.decorateRequest('userId', '')
  await app.listen({ port: Number(PORT), host: '127.0.0.1' })
}

if (cluster.isPrimary) {
  for (let number = 0; number < Number(WORKERS); number++) cluster.fork()
} else {
  await serve()
}
