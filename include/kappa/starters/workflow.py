"""The steps of a change of a team's repository and of its merge, for GitHub Actions."""

WORKFLOW = """
# Of a change: the tests, and what a replay with it would do in production, as a comment. Of a merge: image, deployment.
#
# Variables of the repository (Settings, Actions), without which the jobs that need them are left out:
#   PLAN_RUNNER    label of a runner that reaches brokers and lake
#   DEPLOY_RUNNER  label of a runner on the host of the containers, with env.example, filled in, as /etc/kappa/env
# Secrets, of a user who may only read (a plan changes nothing, and does not start Spark):
#   READER_LOGIN   the client file of the brokers; none where they ask for no login
#   READER_KEYS    the client file of the lake's store; none where the lake is a path or the runner has a role
name: kappa

on:
  pull_request:
  push:
    branches: [main]

permissions:
  contents: read

jobs:
  tests:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
          cache: pip
      - uses: actions/setup-java@v4
        with:
          distribution: temurin
          java-version: "17"
      - run: pip install --requirement requirements.txt pytest
      - run: python -m pytest

  plan:
    # Code of a fork never runs beside the logins.
    if: >-
      github.event_name == 'pull_request' && vars.PLAN_RUNNER != '' &&
      github.event.pull_request.head.repo.full_name == github.repository
    needs: tests
    runs-on: ${{ vars.PLAN_RUNNER }}
    permissions:
      contents: read
      pull-requests: write
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
          cache: pip
      - run: pip install --requirement requirements.txt
      - name: Log in as a reader
        env:
          READER_LOGIN: ${{ secrets.READER_LOGIN }}
          READER_KEYS: ${{ secrets.READER_KEYS }}
        run: |
          umask 077
          if [ -n "$READER_LOGIN" ]; then
            printf '%%s\\n' "$READER_LOGIN" > "$RUNNER_TEMP/kafka.properties"
            echo "KAPPA_KAFKA_CLIENT_FILE=$RUNNER_TEMP/kafka.properties" >> "$GITHUB_ENV"
          fi
          if [ -n "$READER_KEYS" ]; then
            printf '%%s\\n' "$READER_KEYS" > "$RUNNER_TEMP/lake.properties"
            echo "KAPPA_LAKE_CLIENT_FILE=$RUNNER_TEMP/lake.properties" >> "$GITHUB_ENV"
          fi
      - name: Plan a replay of each topology
        run: |
          # A topology or a plan that fails says why, for those who look at the change, and does not end the step.
          kappa topologies --json > "$RUNNER_TEMP/topologies.json" || true
          listed="import json, sys; print(*(t['name'] for t in json.load(sys.stdin).get('topologies', ())))"
          names=$(python -c "$listed" < "$RUNNER_TEMP/topologies.json" || true)
          {
            printf '```text\\n'
            kappa topologies || true
            printf '```\\n'
            for topology in $names; do
              printf '\\n### %%s\\n\\n```text\\n' "$topology"
              kappa explain "$topology" || true
              # Drivers make the topics of an epoch: their login may, and the reader's may not.
              kappa plan "$topology" --allow topics-missing || true
              printf '```\\n'
            done
          } 2>&1 | tee "$RUNNER_TEMP/plan.md"
      - name: Comment
        env:
          GH_TOKEN: ${{ github.token }}
          NUMBER: ${{ github.event.pull_request.number }}
        run: |
          # A comment has room for 65,536 characters. The first line, which nobody sees, tells it from those of others.
          { echo '<!-- kappa-plan -->'; head --bytes 65000 "$RUNNER_TEMP/plan.md"; } > "$RUNNER_TEMP/comment.md"
          comments="repos/$GITHUB_REPOSITORY/issues/$NUMBER/comments"
          filter='.[] | select(.user.login == "github-actions[bot]")'
          filter+=' | select(.body | startswith("<!-- kappa-plan -->")) | .id'
          ids=$(gh api --paginate "$comments" --jq "$filter")
          read -r id <<< "$ids"
          if [ -n "$id" ]; then
            gh api --silent --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$id" \\
              --field "body=@$RUNNER_TEMP/comment.md"
          else
            gh api --silent --method POST "$comments" --field "body=@$RUNNER_TEMP/comment.md"
          fi

  image:
    if: github.event_name == 'push'
    needs: tests
    runs-on: ubuntu-latest
    permissions:
      contents: read
      packages: write
    steps:
      - uses: actions/checkout@v4
      - env:
          TOKEN: ${{ github.token }}
        run: |
          image="ghcr.io/${GITHUB_REPOSITORY,,}:$GITHUB_SHA"
          echo "$TOKEN" | docker login ghcr.io --username "$GITHUB_ACTOR" --password-stdin
          docker build --tag "$image" .
          docker push "$image"

  # Drivers go on with the code of their epochs, after a pause of seconds. New code runs after a replay.
  deployment:
    if: github.event_name == 'push' && vars.DEPLOY_RUNNER != ''
    needs: image
    runs-on: ${{ vars.DEPLOY_RUNNER }}
    environment: production
    concurrency: production
    permissions:
      contents: read
      packages: read
    steps:
      - uses: actions/checkout@v4
      - env:
          TOKEN: ${{ github.token }}
        run: |
          export IMAGE="ghcr.io/${GITHUB_REPOSITORY,,}:$GITHUB_SHA"
          echo "$TOKEN" | docker login ghcr.io --username "$GITHUB_ACTOR" --password-stdin
          docker compose --env-file /etc/kappa/env pull
          docker compose --env-file /etc/kappa/env up --detach --no-build
          docker compose --env-file /etc/kappa/env run --rm kappa status
"""
