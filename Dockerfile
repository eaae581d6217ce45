# The HTTP service on a CPU (docs/guides/serving.md): docker compose up --build
FROM python:3.11-slim AS build
WORKDIR /build
RUN python -m venv /opt/faithkit
COPY requirements/score.lock requirements/serve.lock requirements/
RUN PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu /opt/faithkit/bin/pip install --no-cache-dir \
    --require-hashes -r requirements/score.lock -r requirements/serve.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY configs configs
COPY faithkit faithkit
COPY faithkit_workflows faithkit_workflows
COPY faithkit_papers faithkit_papers
COPY data_modules data_modules
COPY critic critic
COPY generation generation
COPY judge judge
COPY construction construction
RUN /opt/faithkit/bin/pip install --no-cache-dir --no-deps .

FROM python:3.11-slim
COPY --from=build /opt/faithkit /opt/faithkit
# A new volume takes its owner from this folder; the first start fetches the weights into it.
RUN useradd --uid 10001 --no-create-home faithkit && install -d -o faithkit /var/lib/faithkit
ENV PATH=/opt/faithkit/bin:$PATH FAITHKIT_HOME=/var/lib/faithkit HOME=/tmp PYTHONUNBUFFERED=1
USER faithkit
WORKDIR /tmp
VOLUME /var/lib/faithkit
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health/ready', timeout=4)"]
ENTRYPOINT ["faithkit", "serve", "host=0.0.0.0", "port=8000"]
CMD ["keys_path=/run/secrets/keys"]
